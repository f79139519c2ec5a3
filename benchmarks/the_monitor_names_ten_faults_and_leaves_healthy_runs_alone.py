"""How many of ten injected faults the monitor names within two measurements, and how often it
speaks in healthy runs.

Small models of three kinds (GPT-2; Llama with grouped queries; Mixtral, four experts) are trained
in a plain loop of 56 steps: widths 16 to 48, 1 to 3 blocks, rates 3e-4 to 3e-3, tied or not, two
vocabularies (bytes, and 512 tokens of Zipfian draws), contexts of 16 and 32, a measurement every 4
or 8 steps, all drawn from the run's number. The families of the monitor are read as often.

Each fault is put into runs of the kinds that can have it, at step 40 or at the beginning (no
warm-up): in how many is it named within two measurements, by a rule of its own, by any, and by
plain detection of loss spikes (a loss that is no number, or five deviations of the last 30 above
their mean)? Rules and limits may be changed with a look at the calibration: healthy runs 0 to 299,
100 of each kind, and faults in runs from 20,000 on. The confirmation is made afterwards, on runs
that nobody has looked at: healthy ones from FIRST on, their kinds in turn, and faults from FIRST +
10,000 on. Everything is resumed from the file STORE
(`headscan-results/benchmarks/monitor-faults.jsonl`); delete it where a rule was changed. Arguments:
healthy runs of a kind (100), runs of a fault (12), which part (calibration, confirmation; both),
FIRST (40000).
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _table import show
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
)

from headscan.statistics import NonFinite
from headscan.statistics.uncertainty import wilson
from headscan.text.source import embedded
from headscan.training import ALARMS, Watch

STORE = (
    Path(__file__).resolve().parents[1] / "headscan-results" / "benchmarks" / "monitor-faults.jsonl"
)
STEPS = 56
BATCH = 8
AT = 40
KINDS = ("gpt2", "llama", "mixtral")
SPECIAL: dict[str, Any] = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}


@dataclass
class Run:
    """The parts of a training run that a fault may change."""

    model: Any
    optimiser: torch.optim.Optimizer
    steps: int = 0  # since the fault began
    rate: float = 1.0  # factor of the learning rate
    state: Any = None

    @property
    def blocks(self) -> Any:
        """The blocks."""
        return (
            self.model.transformer.h
            if hasattr(self.model, "transformer")
            else self.model.model.layers
        )


def spread(run: Run) -> None:
    """The learning rate is thirty times as high."""
    run.rate = 30.0


def starve(run: Run) -> None:
    """Two of four experts are shut out of the choice."""
    if run.steps == 0:
        shut = torch.tensor([0.0, 0.0, -1e4, -1e4])
        for block in run.blocks:
            gate = block.mlp.gate if hasattr(block.mlp, "gate") else block.block_sparse_moe.gate
            gate.forward = _shut(gate, shut)


def _shut(gate: Any, shut: torch.Tensor) -> Callable[[torch.Tensor], tuple[torch.Tensor, ...]]:
    def forward(states: torch.Tensor) -> tuple[torch.Tensor, ...]:
        logits = torch.nn.functional.linear(states.reshape(-1, gate.hidden_dim), gate.weight) + shut
        values, experts = torch.topk(logits.float().softmax(-1), gate.top_k, dim=-1)
        return logits, values / values.sum(-1, keepdim=True), experts

    return forward


def grow(run: Run) -> None:
    """Queries and keys of the last block grow by half at every step."""
    for weight in _queries_and_keys(run):
        weight.mul_(1.5)


def _queries_and_keys(run: Run) -> list[torch.Tensor]:
    block = run.blocks[-1]
    if hasattr(block, "attn"):
        return [block.attn.c_attn.weight[:, : 2 * block.attn.embed_dim]]
    return [block.self_attn.q_proj.weight, block.self_attn.k_proj.weight]


def collapse(run: Run) -> None:
    """The first head of the last block looks at one place: its queries are scaled until scores of
    white states deviate by 30.
    """
    if run.steps:
        return
    block = run.blocks[-1]
    if hasattr(block, "attn"):
        size = block.attn.head_dim
        width = block.attn.embed_dim
        query = block.attn.c_attn.weight[:, :size]
        key = block.attn.c_attn.weight[:, width : width + size]
    else:
        size = block.self_attn.head_dim
        query = block.self_attn.q_proj.weight[:size].T
        key = block.self_attn.k_proj.weight[:size].T
    query.mul_(30 * size**0.5 / (query @ key.T).norm())


def overflow(run: Run) -> None:
    """Under bfloat16 the last block's output grows a hundred thousandfold at every step."""
    block = run.blocks[-1]
    last = block.mlp.c_proj.weight if hasattr(block, "attn") else block.self_attn.o_proj.weight
    last.mul_(1e5)


def spike(run: Run) -> None:
    """Three rows of the embedding are forty times as long."""
    if run.steps == 0:
        run.model.get_input_embeddings().weight[5:8] *= 40


def freeze(run: Run) -> None:
    """The first block learns no more."""
    for weight in run.blocks[0].parameters():
        weight.requires_grad_(False)
        weight.grad = None


def nothing(run: Run) -> None:
    """Do nothing; the loop itself makes these faults: noise for text, one batch again and
    again, no warm-up.
    """


# What a fault does at each step from the 40th on; which rules are its own; which kinds can have it.
FAULTS: dict[str, tuple[Callable[[Run], None], set[str], tuple[str, ...]]] = {
    "bad shard": (nothing, {"loss", "rise", "shard"}, KINDS),
    "too high rate": (spread, {"update"}, KINDS),
    "no warm-up": (nothing, {"warmup"}, KINDS),
    "dead experts": (starve, {"experts"}, ("mixtral",)),
    "logit growth": (grow, {"logits"}, KINDS),
    "head collapse": (collapse, {"entropy"}, KINDS),
    "bf16 overflow": (overflow, {"overflow"}, ("gpt2", "llama")),
    "embedding spikes": (spike, {"rows"}, KINDS),
    "layer frozen": (freeze, {"frozen"}, KINDS),
    "data repeated": (nothing, {"repeated"}, KINDS),
}


def tokens_of(kind: str, seed: int = 7) -> tuple[np.ndarray, int]:
    """A text as ids, and its vocabulary."""
    if kind == "bytes":
        return np.frombuffer(embedded("stories").read_bytes(), dtype=np.uint8).astype(np.int64), 256
    draws = np.random.default_rng(seed)
    weights = 1 / np.arange(1, 513)
    # each token has favourite successors
    pairs = draws.permuted(np.tile(np.arange(512), (512, 1)), axis=1)
    ids = []
    now = 0
    for rank_of in draws.choice(512, size=100_000, p=weights / weights.sum()):
        now = int(pairs[now, rank_of])
        ids.append(now)
    return np.array(ids), 512


def model_of(kind: str, vocabulary: int, context: int, draw: np.random.Generator) -> Any:
    """A fresh model."""
    width = int(draw.choice([16, 32, 48]))
    blocks = int(draw.integers(1, 4))
    tied = bool(draw.integers(2))
    if kind == "gpt2":
        return GPT2LMHeadModel(
            GPT2Config(
                vocab_size=vocabulary,
                n_embd=width,
                n_layer=blocks,
                n_head=2,
                n_positions=context,
                tie_word_embeddings=tied,
                **SPECIAL,
            )
        )
    options: dict[str, Any] = {
        "vocab_size": vocabulary,
        "hidden_size": width,
        "intermediate_size": 2 * width,
        "num_hidden_layers": blocks,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": context,
        "tie_word_embeddings": tied,
    } | SPECIAL
    if kind == "llama":
        return LlamaForCausalLM(LlamaConfig(**options))
    options |= {
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "output_router_logits": True,
        "router_aux_loss_coef": 0.02,
    }
    return MixtralForCausalLM(MixtralConfig(**options))


def trained(
    number: int, kind: str, fault: str | None, texts: dict[str, tuple[np.ndarray, int]]
) -> dict[str, Any]:
    """One run: the largest change of each rule, the alarms by step, how far apart readings were,
    when the peer spoke.
    """
    draw = np.random.default_rng(number)
    ids, vocabulary = texts[str(draw.choice(["bytes", "zipf"]))]
    context = int(draw.choice([16, 32]))
    interval = int(draw.choice([4, 8]))
    rate = float(draw.choice([3e-4, 1e-3, 3e-3]))
    torch.manual_seed(number)
    model = model_of(kind, vocabulary, context, draw).train()
    if fault == "no warm-up":
        rate = 3e-3
    run = Run(model, torch.optim.AdamW(model.parameters(), lr=rate))
    act = FAULTS[fault][0] if fault else nothing
    starts = draw.integers(0, len(ids) * 9 // 10 - context, (STEPS, BATCH))
    held_out_starts = len(ids) * 9 // 10 + np.arange(8) * context
    watch = Watch(model, np.stack([ids[start : start + context] for start in held_out_starts]))
    watch.reader.families[:] = [type(family)(every=interval) for family in watch.reader.families]
    largest: dict[str, float] = {}
    follow(watch, largest)
    spiked: list[int] = []
    for step in range(1, STEPS + 1):
        bad = fault is not None and step > AT
        batch_starts = starts[AT] if bad and fault == "data repeated" else starts[step - 1]
        rows = torch.from_numpy(np.stack([ids[start : start + context] for start in batch_starts]))
        if bad and fault == "bad shard":
            rows = torch.randint(vocabulary, rows.shape)
        if bad:
            with torch.no_grad():
                act(run)
            run.steps += 1
        for group in run.optimiser.param_groups:
            group["lr"] = rate * run.rate * (1 if fault == "no warm-up" else min(1, step / 15))
        with (
            watch.step(step, run.optimiser),
            torch.autocast("cpu", torch.bfloat16, enabled=fault == "bf16 overflow"),
        ):
            loss = model(input_ids=rows, labels=rows).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            run.optimiser.step()
        run.optimiser.zero_grad()
        value = float(loss.detach())
        if spikes(watch.losses, value):
            spiked.append(step)
        watch.loss(step, value)
        if step % interval == 0:
            with suppress(NonFinite):
                watch.measure(step)
    watch.harvest()
    return {
        "run": number,
        "kind": kind,
        "fault": fault,
        "every": interval,
        "rate": rate,
        "loss": value,
        "spiked": spiked,
        "alarms": [(alarm.name, alarm.step) for alarm in watch.raised],
        "largest": {name: value for name, value in largest.items() if math.isfinite(value)},
    }


def spikes(losses: list[float], now: float) -> bool:
    """The peer: five deviations of the last 30 losses above their mean, or no number."""
    lately = losses[-30:]
    if not math.isfinite(now):
        return True
    return len(lately) == 30 and bool(now > np.mean(lately) + 5 * np.std(lately, ddof=1))


def follow(watch: Watch, largest: dict[str, float]) -> None:
    """Note the largest change that each rule ever sees."""
    for rule in watch.rules:

        def change(values: Any, name: str = rule.name, inner: Any = rule.change) -> float | None:
            value = inner(values)
            if value is not None:
                largest[name] = max(largest.get(name, -math.inf), value)
            return value

        object.__setattr__(rule, "change", change)


def main() -> None:
    """Run what is missing, then print the tables."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    hurt = int(sys.argv[2]) if len(sys.argv) > 2 else 12
    parts = sys.argv[3].split(",") if len(sys.argv) > 3 else ["calibration", "confirmation"]
    first = int(sys.argv[4]) if len(sys.argv) > 4 else 40_000
    torch.set_num_threads(1)
    texts = {kind: tokens_of(kind) for kind in ("bytes", "zipf")}
    STORE.parent.mkdir(parents=True, exist_ok=True)
    have = [json.loads(line) for line in STORE.read_text().splitlines()] if STORE.exists() else []
    done = {(run["run"], run["fault"]) for run in have}
    plan: list[tuple[int, str, str | None]] = []
    for part in parts:
        start = 20_000 if part == "calibration" else first + 10_000
        for k in range(hurt):
            plan += [
                (start + k, kinds[k % len(kinds)], name) for name, (_, _, kinds) in FAULTS.items()
            ]
        start = 0 if part == "calibration" else first
        plan += [
            (start + k, KINDS[k // count] if part == "calibration" else KINDS[k % 3], None)
            for k in range(3 * count)
        ]
    with STORE.open("a") as store:
        for index, (number, kind, fault) in enumerate(plan):
            if (number, fault) not in done:
                have.append(trained(number, kind, fault, texts))
                print(json.dumps(have[-1]), file=store, flush=True)
                print(f"\r{index + 1}/{len(plan)} runs   ", end="", file=sys.stderr, flush=True)
    planned = {(number, fault) for number, _, fault in plan}
    for part in parts:
        print(f"\n{part}\n")
        runs = [run for run in have if (run["run"], run["fault"]) in planned]
        calibrates = part == "calibration"
        tables([run for run in runs if (run["run"] < 30_000) == calibrates])


def delay(run: dict[str, Any], names: set[str], first: int) -> float:
    """Return after how many measurements one of the rules spoke, from step `first` on; infinite if
    none did.
    """
    steps = [step for name, step in run["alarms"] if name in names and step >= first]
    return (min(steps) - first) / run["every"] if steps else math.inf


def tables(have: list[dict[str, Any]]) -> None:
    """The rules on healthy runs, the faults, and how many healthy runs had an alarm."""
    rules = {name: ALARMS.build(name) for name in ALARMS.names()}
    healthy = [run for run in have if run["fault"] is None]

    rows = []
    for name, rule in rules.items():
        largest = [run["largest"].get(name, -9) for run in healthy]
        rows.append(
            {
                "rule": name,
                "code": rule.code,
                "limit": rule.limit,
                "largest_healthy": max(largest, default=math.nan),
                "false_alarms": sum(value > rule.limit for value in largest),
                "of": len(healthy),
            }
        )
    show(rows)
    rows = []
    for fault, (_, expected, _) in FAULTS.items():
        damaged = [run for run in have if run["fault"] == fault]
        first = 1 if fault == "no warm-up" else AT + 1

        by_its_rules = [delay(run, expected, first) for run in damaged]
        by_any = [delay(run, set(rules), first) for run in damaged]
        spikes = [
            any(first <= step < first + 2 * run["every"] for step in run["spiked"])
            for run in damaged
        ]
        # false ones, too
        early = [any(step < first for _, step in run["alarms"]) for run in damaged]
        known_delays = [value for value in by_its_rules if value < math.inf]
        rows.append(
            {
                "fault": fault,
                "runs": len(damaged),
                "by_its_rules": sum(value < 2 for value in by_its_rules),
                "by_any": sum(value < 2 for value in by_any),
                "loss_spike": sum(spikes),
                "median_delay_in_measurements": (
                    float(np.median(known_delays)) if known_delays else math.nan
                ),
                "spoke_before": sum(early),
            }
        )
    show(rows)
    for kind in (*KINDS, "all"):
        runs = [run for run in healthy if kind in (run["kind"], "all")]
        spoke = sum(bool(run["alarms"]) for run in runs)
        spiked = sum(bool(run["spiked"]) for run in runs)
        ends = " to ".join(f"{end:.3f}" for end in wilson(spoke, max(1, len(runs))))
        print(
            f"{kind}: {spoke} of {len(runs)} healthy runs with any alarm (95 %: {ends}); with a "
            f"loss spike: {spiked}"
        )


if __name__ == "__main__":
    main()
