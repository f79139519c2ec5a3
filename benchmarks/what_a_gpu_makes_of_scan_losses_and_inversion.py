"""What a GPU makes of it: the scan beside its forward pass and beside what a user would write, what
runs on the card, the monitor's cost of a step, products in float64, losses side by side, exact
inversion, every verb beside the CPU

Tables of ratios within one run. Models are Llamas of 1 and of 8 billion parameters with random
weights in bf16, which cost what trained ones do; texts are drawn bytes. After four minutes no
further part begins, and those that are left out are named. Without a GPU the same is run at tiny
sizes on the CPU, so that the script is known to work: those figures say nothing of a GPU, and the
first line says so.

    make gpu
    python benchmarks/what_a_gpu_makes_of_scan_losses_and_inversion.py [--tokens 65536] [--parts
    scan,trace,watch,moments,losses,inversion,verbs] [--seconds 240]
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import torch
from _losses import machine, medians
from _table import show
from _verbs import CALLS, agreement, timed_document
from transformers import LlamaConfig, LlamaForCausalLM

import headscan
from headscan.model import ByteTokenizer, Lens
from headscan.text import Windows, batches
from headscan.training import has_fused

GPU = torch.cuda.is_available()
DEVICE, DTYPE = ("cuda", torch.bfloat16) if GPU else ("cpu", torch.float32)
CONTEXT, BATCH = (1024, 16) if GPU else (32, 4)
TURNS = 3


@dataclass(frozen=True)
class Shape:
    """A Llama by its sizes."""

    blocks: int
    width: int
    inner: int
    heads: int
    groups: int
    vocabulary: int


SHAPES = (
    {"1B": Shape(16, 2048, 8192, 32, 8, 128_256), "8B": Shape(32, 4096, 14_336, 32, 8, 128_256)}
    if GPU
    else {"tiny": Shape(2, 64, 128, 4, 2, 512)}
)


def built(shape: Shape) -> Lens:
    """A model of that shape on the device, random weights."""
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=shape.width,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.blocks,
        vocab_size=shape.vocabulary,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.groups,
        max_position_embeddings=2 * CONTEXT,
    )
    default_dtype = torch.get_default_dtype()
    torch.set_default_dtype(DTYPE)
    try:
        with torch.device(DEVICE):
            model = LlamaForCausalLM(config).eval()
    finally:
        torch.set_default_dtype(default_dtype)
    return Lens(model, ByteTokenizer(), name=f"{shape.blocks} x {shape.width}")


def timed(work: Callable[[], Any]) -> float:
    """Seconds, of what the device does too."""
    if GPU:
        torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    if GPU:
        torch.cuda.synchronize()
    return time.perf_counter() - start


def text_and_batches(lens: Lens, tokens: int) -> tuple[list[str], list[Any]]:
    """A text of drawn bytes, and the batches that a scan reads of it."""
    drawn = torch.Generator().manual_seed(0)
    codes = torch.randint(32, 127, (tokens + CONTEXT,), generator=drawn).tolist()
    text = [bytes(codes).decode()]
    windows = Windows(text, lens.require_tokenizer(), CONTEXT, max_tokens=tokens)
    return text, list(batches(windows, BATCH))


@torch.inference_mode()
def obvious(lens: Lens, work: Sequence[Any]) -> list[torch.Tensor]:
    """Do what a user would write: all hidden states, float32 products, sums of directions, and
    eigenvalues in float64; no intervals.
    """
    grams: dict[int, Any] = {}
    directions: dict[int, Any] = {}
    for batch in work:
        ids = torch.from_numpy(batch.ids).to(DEVICE)
        output = lens.model.model(ids, use_cache=False, output_hidden_states=True)
        for site, states in enumerate(output.hidden_states):
            rows = states.reshape(-1, states.shape[-1]).float()
            grams[site] = grams.get(site, 0) + rows.T @ rows
            units = rows / rows.norm(dim=1, keepdim=True)
            directions[site] = directions.get(site, 0) + units.sum(0)
    return [torch.linalg.eigvalsh(gram.double()) for gram in grams.values()]


def scan(tokens: int) -> None:
    """A whole scan (every site, default measures, intervals) beside the forward pass and beside
    what a user would write (no intervals), in turns.
    """
    rows = []
    for name, shape in SHAPES.items():
        lens = built(shape)
        text, work = text_and_batches(lens, tokens)
        last = lens.default_sites[-1:]

        def bare(lens: Lens = lens, work: list[Any] = work, last: Sequence[str] = last) -> None:
            for batch in work:
                lens.run(torch.from_numpy(batch.ids), sites=last, each=lambda *_: None)

        def whole(lens: Lens = lens, text: list[str] = text) -> None:
            headscan.scan(lens, text, max_tokens=tokens, context=CONTEXT)

        def by_hand(lens: Lens = lens, work: list[Any] = work) -> None:
            obvious(lens, work)

        # Each way once, for what is made once.
        bare()
        whole()
        by_hand()
        if GPU:
            torch.cuda.reset_peak_memory_stats()
            bytes_before = torch.cuda.memory_allocated()
        peak = bytes_before if GPU else 0
        times: dict[str, list[float]] = {"bare": [], "whole": [], "by_hand": []}
        for turn in range(TURNS):
            for way in (bare, whole) if turn % 2 else (whole, bare):
                times[way.__name__].append(timed(way))
            peak = torch.cuda.max_memory_allocated() if GPU else 0
            times["by_hand"].append(timed(by_hand))
            if GPU:
                torch.cuda.reset_peak_memory_stats()
        ratios = [
            scan_seconds / bare_seconds
            for scan_seconds, bare_seconds in zip(times["whole"], times["bare"], strict=True)
        ]
        rows.append(
            {
                "model": name,
                "sites": len(lens.default_sites),
                "tokens": tokens,
                "forward_s": median(times["bare"]),
                "scan_s": median(times["whole"]),
                "scan_over_forward": median(ratios),
                "by_hand_over_forward": median(times["by_hand"]) / median(times["bare"]),
                "beside_the_model_GB": (peak - bytes_before) / 1e9 if GPU else "",
            }
        )
        del lens, bare, whole, by_hand
        if GPU:
            torch.cuda.empty_cache()
    show(rows)


def trace(tokens: int) -> None:
    """Count what a scan does on the card, by torch's profiler: kernels launched, copies, waits."""
    from torch.profiler import ProfilerActivity, profile

    lens = built(next(iter(SHAPES.values())))
    text, _ = text_and_batches(lens, tokens)

    def whole() -> None:
        headscan.scan(lens, text, max_tokens=tokens, context=CONTEXT)

    whole()
    activities = [ProfilerActivity.CPU]
    if GPU:
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities) as seen:
        timed(whole)
    counted = ("cudaLaunchKernel", "cudaMemcpyAsync", "cudaStreamSynchronize", "aten::linalg_eigh")
    rows = []
    for event in seen.key_averages():
        if event.key in counted or "Memcpy" in event.key or "eigh" in event.key:
            rows.append({"what": event.key, "times": event.count})
    if rows:
        show(sorted(rows, key=lambda row: -row["times"]))
    else:
        print("Nothing runs on a device here.")


def watch() -> None:
    """The monitor of a GPT-2 in training: a measurement in steps, and its families' clocks."""
    from transformers import GPT2Config, GPT2LMHeadModel

    from headscan.training import Watch

    small: dict[str, Any] = {
        "vocab_size": 500,
        "n_embd": 32,
        "n_layer": 2,
        "n_head": 2,
        "n_positions": 64,
    }
    config = GPT2Config() if GPU else GPT2Config(**small)
    length, rows, count = (1024, 16, 60) if GPU else (64, 4, 5)
    model: Any = GPT2LMHeadModel(config)
    model.to(DEVICE).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=GPU)
    ids = torch.randint(config.vocab_size, (rows, length), device=DEVICE)

    def step() -> None:
        with torch.autocast(DEVICE, torch.bfloat16, enabled=GPU):
            loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    held_out = torch.randint(config.vocab_size, (32, min(length, 256))).numpy()
    watcher = Watch(model, held_out)

    def plain() -> None:
        for _ in range(count):
            step()

    def watched(first: int) -> None:
        for number in range(first, first + count):
            with watcher.step(number, optimiser):
                step()

    plain()
    watcher.measure(0)
    for turn in range(2):
        seconds = timed(plain)
        row = {
            "step_s": seconds / count,
            "watched_over_plain": timed(partial(watched, 1 + turn * count)) / seconds,
            "measurement_in_steps": timed(partial(watcher.measure, turn + 1)) * count / seconds,
        }
    show([row])


def moments() -> None:
    """One second moment: float64, float32 split in 3 slices of 8 bits (docs/states.md has the
    bound), plain float32.
    """
    from second_moments_from_split_float32_are_slower_than_float64_on_a_cpu import moment

    rows = []
    for width in (2048, 4096) if GPU else (64,):
        x = torch.randn(16_384 if GPU else 512, width, device=DEVICE)
        ways = {
            "float64": lambda x=x: x.double().T @ x.double(),
            "3 slices": lambda x=x: moment(x, 3),
            "float32": lambda x=x: x.T @ x,
        }
        exact = ways["float64"]()
        for way in ways.values():
            way()
        times = {name: min(timed(way) for _ in range(TURNS)) for name, way in ways.items()}
        for name, way in ways.items():
            error = float((way().double() - exact).abs().max() / exact.diagonal().max())
            times_64 = times[name] / times["float64"]
            rows.append(
                {
                    "d": width,
                    "products": name,
                    "ms": 1e3 * times[name],
                    "times_float64": times_64,
                    "error": error,
                }
            )
    show(rows)


def losses() -> None:
    """Forward and backward of headless and usual losses, by every kernel that runs here."""
    rows, vocabulary, width = (8192, 128_256, 2048) if GPU else (64, 512, 32)
    names = ["CWT unique", "CWT chunked", "CE gathered, logits kept", "CE gathered, chunked"]
    names += ["CWT fused", "CE gathered, fused"] if has_fused() else []
    seconds = medians(names, rows, vocabulary, width, 10 if GPU else 2, DEVICE, DTYPE)
    best = min(value for name, value in seconds.items() if name.startswith("CE"))
    show(
        [
            {"loss": name, "ms": 1e3 * value, "of_the_best_cross_entropy": value / best}
            for name, value in sorted(seconds.items(), key=lambda item: item[1])
        ]
    )
    print(f"\nK = {rows:,}, V = {vocabulary:,}, d = {width:,}.")
    if not has_fused():
        print(
            "\nThe fused forms are left out: this torch has no `linear_cross_entropy` (2.13 and "
            "later have it)."
        )


def inversion() -> None:
    """Exact inversion of drawn bytes from a middle block: every token, and seconds a token."""
    name, shape = next(iter(SHAPES.items()))
    lens = built(shape)
    length = 24 if GPU else 6
    drawn = torch.Generator().manual_seed(1)
    prompt = bytes(torch.randint(97, 123, (length,), generator=drawn).tolist()).decode()
    site = f"block.{shape.blocks // 2}"
    results: list[Any] = []
    seconds = timed(lambda: results.append(headscan.invert(lens, [prompt], at=site)))
    result = results[0]
    show(
        [
            {
                "model": name,
                "site": site,
                "tokens": length,
                "recovered": float(result.token_accuracy),
                "s_a_token": seconds / length,
                "verdict": str(result.prompts[0].verdict),
            }
        ]
    )
    print("\nThe readout's fit is counted in.")


def verbs() -> None:
    """Every verb on the device and on the CPU: seconds, the largest relative difference of any
    number (below 0.001: of 0.001), and how many words, counts and truths differ.
    """
    model = "gpt-vanilla" if GPU else "gpt-vanilla-early"
    rows = []
    for name in CALLS:
        try:
            document, seconds = timed_document(name, model, DEVICE)
        except Exception:  # the other verbs are of interest all the same
            print(f"{name} fails on the device:")
            traceback.print_exc(file=sys.stdout)
            continue
        expected, seconds_on_cpu = timed_document(name, model, "cpu")
        compared = agreement(document, expected)
        rows.append(
            {
                "verb": name,
                "s": seconds,
                "s_on_the_CPU": seconds_on_cpu,
                "numbers": compared.numbers,
                "largest_difference": compared.largest,
                "of": compared.place,
                "others_that_differ": len(compared.texts),
            }
        )
    show(rows)


def main() -> None:
    """Every part."""
    parts: dict[str, Callable[[], None]] = {
        "scan": lambda: scan(options.tokens),
        "trace": lambda: trace(options.tokens),
        "watch": watch,
        "moments": moments,
        "losses": losses,
        "inversion": inversion,
        "verbs": verbs,
    }
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=65_536 if GPU else 512)
    parser.add_argument("--parts", default=",".join(parts))
    parser.add_argument("--seconds", type=float, default=240.0)
    options = parser.parse_args()
    if not GPU:
        print(
            "**There is no GPU here: tiny sizes on the CPU, which say only that the script "
            "works.**\n"
        )
    print(machine())
    start = time.perf_counter()
    for name in options.parts.split(","):
        if time.perf_counter() - start > options.seconds:
            print(f"\n{name} is left out: {options.seconds:g} seconds are over.")
            continue
        print(f"\n{(parts[name].__doc__ or globals()[name].__doc__).strip()}\n")
        parts[name]()


if __name__ == "__main__":
    main()
