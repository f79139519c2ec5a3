"""Occlusion of a prompt is faster than one forward pass a token, and than captum and inseq.

    OMP_NUM_THREADS=1 python benchmarks/occlusion_is_faster_than_a_forward_pass_a_token.py [MODEL
    ...]

For prompts of 64 and 256 tokens, in one process and one thread, with the same substitute:

- headscan: rows packed end to end behind the prompt's keys and values, one position through the
  last block and the head;
- loop: one forward pass of the whole prompt a token, as the seed's code does;
- captum: FeatureAblation with its own batching (perturbations_per_eval = 64, its fastest here);
- inseq: its occlusion, one attributed token, whichever of captum and inseq is installed.

Scores of headscan, loop and captum are compared, too. inseq is given texts, so a tokenizer of one
word a token is made for it. Times are processor seconds, the best of three rounds (64 tokens) or
one (256), in turn, after a first round of 16 tokens. "Products" counts the multiplications and
additions of matrix products outside attention that the loop needs for one of headscan's: what a
machine that is busy with nothing else could gain at best; what the times have above it is saved
elsewhere (starts of passes, elementwise work). MODEL is anything `Lens.load` takes; by default a
random GPT-2 of width 256 with 6 blocks and 8,192 tokens, an embedded specimen, and stories260K
where a folder of assets has it (`HEADSCAN_ASSETS`).
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import torch
from _table import show
from torch.utils.flop_counter import FlopCounterMode
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from headscan.attribution import AttributionTarget, Coalitions, Engine, TargetStep
from headscan.attribution.engine import plan
from headscan.attribution.units import Unit
from headscan.model import Lens

TOKEN = 5
SUBSTITUTE = 2


def models(names: list[str]) -> list[Lens]:
    if names:
        return [Lens.load(name) for name in names]
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=8192,
        bos_token_id=0,
        eos_token_id=0,
        n_positions=2048,
        n_embd=256,
        n_layer=6,
        n_head=4,
    )
    lenses = [
        Lens(GPT2LMHeadModel(config).eval(), name="random GPT-2, 6 × 256"),
        Lens.load("gpt-vanilla"),
    ]
    assets = Path(
        os.environ.get("HEADSCAN_ASSETS", Path(__file__).resolve().parents[2] / "shared" / "assets")
    )
    if (assets / "models" / "stories260K").is_dir():
        lenses.append(Lens.load(str(assets / "models" / "stories260K")))
    return lenses


def headscan_occlusion(lens, ids):
    embeds = lens.input_embeddings[ids].detach()
    substitute = lens.input_embeddings[SUBSTITUTE].detach()
    length = len(ids)
    target = AttributionTarget("logit", (TargetStep(length - 1, TOKEN),))
    units = [Unit((i,), "") for i in range(length)]
    game = Coalitions(Engine(lens), embeds, units, target, substitute, plan(lens, length, 1))
    reference = target.value(game.original[None])[0, 0]
    return reference - torch.from_numpy(game.values(game.without_each())[:, 0])


@torch.no_grad()
def loop(lens, ids):
    embeds = lens.input_embeddings[ids].detach()
    substitute = lens.input_embeddings[SUBSTITUTE].detach()
    reference = lens.model(inputs_embeds=embeds[None]).logits[0, -1, TOKEN]
    scores = []
    for i in range(len(embeds)):
        changed = embeds.clone()
        changed[i] = substitute
        scores.append(reference - lens.model(inputs_embeds=changed[None]).logits[0, -1, TOKEN])
    return torch.stack(scores)


@torch.no_grad()
def captum_ablation(lens, ids):
    from captum.attr import FeatureAblation

    def forward(rows):
        return lens.model(inputs_embeds=rows).logits[:, -1, TOKEN]

    embeds = lens.input_embeddings[ids].detach()
    substitute = lens.input_embeddings[SUBSTITUTE].detach()
    mask = torch.arange(len(embeds))[None, :, None].expand(1, -1, embeds.shape[1])
    result = FeatureAblation(forward).attribute(
        embeds[None],
        baselines=substitute.expand_as(embeds)[None],
        feature_mask=mask,
        perturbations_per_eval=64,
    )
    return result[0, :, 0]


def inseq_occlusion(lens, ids):
    import inseq

    if "_inseq" not in lens.__dict__:
        from tokenizers import Tokenizer, models, pre_tokenizers

        word_level = Tokenizer(
            models.WordLevel({f"w{i}": i for i in range(lens.vocabulary_size)}, unk_token="w0")
        )
        word_level.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=word_level,
            unk_token="w0",
            pad_token="w2",
            bos_token="w1",
            eos_token="w2",
        )
        lens.__dict__["_inseq"] = inseq.load_model(lens.model, "occlusion", tokenizer=tokenizer)
    text = " ".join(f"w{i}" for i in ids.tolist())
    result = lens.__dict__["_inseq"].attribute(
        text,
        generated_texts=f"{text} w{TOKEN}",
        skip_special_tokens=True,
        show_progress=False,
        attributed_fn="logit",
    )
    return result.sequence_attributions[0].target_attributions.flatten()[: len(ids)]


def ways():
    methods = {"headscan": headscan_occlusion, "loop": loop}
    for name, way in (("captum.attr", captum_ablation), ("inseq", inseq_occlusion)):
        try:
            __import__(name)
        except Exception as error:  # a peer that is broken is as good as absent
            print(f"{name.split('.')[0]} is not compared: {str(error).splitlines()[0]}.\n")
            continue
        methods[name.split(".")[0]] = way
    return methods


def products(way, lens, ids) -> int:
    with FlopCounterMode(display=False) as counter:
        way(lens, ids)
    return counter.get_total_flops()


def main() -> None:
    torch.set_num_threads(1)
    if sys.argv[1:] == ["--memory"]:
        show(memory(models([])[0]))
        return
    methods = ways()
    rows = []
    for lens in models(sys.argv[1:]):
        for way in methods.values():
            way(lens, torch.arange(3, 19))
        for length in (64, 256):
            if lens.context_length is not None and length > lens.context_length:
                continue
            ids = torch.randint(
                3, lens.vocabulary_size, (length,), generator=torch.Generator().manual_seed(length)
            )
            best = dict.fromkeys(methods, float("inf"))
            scores = {}
            for _ in range(3 if length == 64 else 1):
                for name, way in methods.items():
                    # inseq runs the token that is explained, too.
                    most = (lens.context_length or 1024) - 1 if name == "inseq" else length
                    start = time.process_time()
                    scores[name] = way(lens, ids[:most])
                    best[name] = min(best[name], time.process_time() - start)
            known = [name for name in ("headscan", "captum") if name in scores]
            size = float(scores["loop"].abs().max())
            apart = max(float((scores[name] - scores["loop"]).abs().max()) / size for name in known)
            gain = products(loop, lens, ids) / products(headscan_occlusion, lens, ids)
            peers = [
                f"{best[k] / best['headscan']:.1f}" if k in best else "–"
                for k in ("loop", "captum", "inseq")
            ]
            rows.append(
                {"model": lens.name, "tokens": length, "headscan, s": best["headscan"]}
                | dict(zip(("loop takes ×", "captum takes ×", "inseq takes ×"), peers, strict=True))
                | {"products of the loop ×": f"{gain:.1f}", "scores apart by": f"{apart:.0e}"}
            )
    show(rows)
    versions = ", ".join(
        f"{name} {version(name)}" for name in methods if name in ("captum", "inseq")
    )
    print(
        "\nProcessor seconds of one thread, the same prompt and substitute; '×': how many times "
        "headscan's time a peer takes "
        f"({versions or 'no peer was installed'}). 'Products of the loop': its matrix products "
        "outside attention for "
        "one of headscan's, the most "
        "that a machine busy with nothing else could gain; times above it come from fewer starts "
        "of passes and less "
        "elementwise work. The goal of five times a loop is not reached on models that keep the "
        "processor busy: half of "
        "the loop's products remain whatever is shared, since every token behind the occluded "
        "one changes."
    )
    print(
        "\nPeak memory beside the weights at a budget of 64 MiB, by the high-water mark of a "
        "process of its own:\n"
    )
    # The peers' batches above have raised this process's mark.
    print(
        subprocess.run(
            [sys.executable, __file__, "--memory"], capture_output=True, text=True, check=True
        ).stdout
    )


def high_water() -> int:
    """KiB that this process has had at most. (`ru_maxrss` of a child begins with its parent's.)"""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])


def memory(lens: Lens) -> list[dict[str, object]]:
    """32 spans of a prompt are occluded: memory, not time, is asked."""
    rows: list[dict[str, object]] = []
    headscan_occlusion(lens, torch.arange(3, 19))  # libraries are loaded, buffers of kernels made
    memory_before = high_water()
    for length in (256, 512, 1024):
        if lens.context_length is not None and length > lens.context_length:
            continue
        embeds = lens.input_embeddings[
            torch.arange(length) % (lens.vocabulary_size - 3) + 3
        ].detach()
        target = AttributionTarget("logit", (TargetStep(length - 1, TOKEN),))
        units = [
            Unit(tuple(range(i, i + length // 32)), "") for i in range(0, length, length // 32)
        ]
        planned = plan(lens, length, 1, budget=64 * 2**20)
        game = Coalitions(
            Engine(lens), embeds, units, target, lens.input_embeddings[SUBSTITUTE].detach(), planned
        )
        game.values(game.without_each())
        peak = high_water()
        rows.append(
            {
                "tokens": length,
                "rows a batch": planned.rows,
                "growth, MiB": f"{(peak - memory_before) / 1024:+.0f}",
            }
        )
    return rows


if __name__ == "__main__":
    main()
