"""How many injected collapses the monitor names within two measurements, and how often it speaks in
100 healthy runs.

Small GPT-2s are trained in a plain loop: widths 16 to 64, 1 to 4 blocks, 3 rates, cross-entropy
tied or not, two vocabularies (bytes and 512 tokens of Zipfian draws), contexts of 16 and 32, 120
steps, a measurement every 5, 10 or 15, all drawn from the run's number. Runs 0 to 99 are the
calibration: of each rule the largest change in any of them is shown beside its limit. Runs 1,000 to
1,099 are the test: how many raise an alarm, and which. Then every collapse (rank, cone, dead
coordinates, norm, a broken shard of data) is put into 20 runs at step 90 (2,000 to 2,019), the
shard, which two rules look for, into 40 more (3,000 to 3,039): in how many is it named within two
measurements, by the rule of its name, by any? Everything is resumed from
`headscan-results/benchmarks/monitor.jsonl`. Argument: how many runs of each kind (100).
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _table import show
from transformers import GPT2Config, GPT2LMHeadModel

from headscan.text.source import embedded
from headscan.training import ALARMS, Watch

STORE = Path(__file__).resolve().parents[1] / "headscan-results" / "benchmarks" / "monitor.jsonl"
STEPS = 120
BATCH = 16
AT = 90


def rank(model: Any) -> None:
    """The last block writes along one direction."""
    weight = model.transformer.h[-1].mlp.c_proj.weight
    draw = torch.Generator().manual_seed(0)
    weight.copy_(
        30
        * torch.outer(
            torch.randn(weight.shape[0], generator=draw),
            torch.randn(weight.shape[1], generator=draw),
        )
    )


def cone(model: Any) -> None:
    """A constant, five times as long as the states, is added to every one."""
    bias = model.transformer.h[-1].mlp.c_proj.bias
    bias.copy_(30 * torch.ones_like(bias).cumsum(0).sin())


def dead(model: Any) -> None:
    """A quarter of the last norm's coordinates die."""
    model.transformer.ln_f.weight[: len(model.transformer.ln_f.weight) // 4] = 0
    model.transformer.ln_f.bias[: len(model.transformer.ln_f.bias) // 4] = 0


def norm(model: Any) -> None:
    """The first block writes a thousand times as loud."""
    model.transformer.h[0].mlp.c_proj.weight.mul_(1000)


FAULTS: dict[str, Callable[[Any], None]] = {
    "rank": rank,
    "cone": cone,
    "dead": dead,
    "norm": norm,
    "loss": lambda _: None,
}

# of shape and loss; those of the families have a benchmark of their own
RULES = ("cone", "dead", "loss", "norm", "rank", "rise")
# What training would mend at once is done again after every step.
LASTING = ("rank", "cone", "dead")


def tokens_of(kind: str) -> tuple[np.ndarray, int]:
    """A text as ids, and its vocabulary."""
    if kind == "bytes":
        return np.frombuffer(embedded("stories").read_bytes(), dtype=np.uint8).astype(np.int64), 256
    draws = np.random.default_rng(7)
    weights = 1 / np.arange(1, 513)
    # each token has favourite successors
    pairs = draws.permuted(np.tile(np.arange(512), (512, 1)), axis=1)
    ids = []
    now = 0
    for rank_of in draws.choice(512, size=200_000, p=weights / weights.sum()):
        now = int(pairs[now, rank_of])
        ids.append(now)
    return np.array(ids), 512


def trained(
    number: int, fault: str | None, texts: dict[str, tuple[np.ndarray, int]]
) -> dict[str, Any]:
    """One run: the largest change of each rule, the alarms by step, how far apart readings were."""
    draw = np.random.default_rng(number)
    kind = str(draw.choice(list(texts)))
    context = int(draw.choice([16, 32]))
    width = int(draw.choice([16, 32, 64]))
    blocks = int(draw.choice([1, 2, 4]))
    rate = float(draw.choice([3e-4, 1e-3, 3e-3]))
    tied = bool(draw.integers(2))
    interval = int(draw.choice([5, 10, 15]))
    ids, vocabulary = texts[kind]
    torch.manual_seed(number)
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=vocabulary,
            n_embd=width,
            n_layer=blocks,
            n_head=2,
            n_positions=context,
            tie_word_embeddings=tied,
        )
    )
    optimiser = torch.optim.AdamW(model.parameters(), lr=rate)
    starts = draw.integers(0, len(ids) * 9 // 10 - context, (STEPS, BATCH))
    held_out_starts = len(ids) * 9 // 10 + np.arange(12) * context
    watch = Watch(
        model,
        np.stack([ids[start : start + context] for start in held_out_starts]),
        alarms=",".join(RULES),
        families="",
    )
    noted: list[tuple[str, int]] = []
    largest = {rule.name: -math.inf for rule in watch.rules}
    for step in range(STEPS):
        if fault in LASTING and step > AT:
            with torch.no_grad():
                FAULTS[fault](model)
        if step % interval == 0:
            noted += [(alarm.name, step) for alarm in watch.measure(step)]
            follow(watch, largest, "geometry")
        if fault and step == AT:
            with torch.no_grad():
                FAULTS[fault](model)
        rows = torch.from_numpy(np.stack([ids[start : start + context] for start in starts[step]]))
        if fault == "loss" and step >= AT:  # a shard of noise
            rows = torch.randint(vocabulary, rows.shape)
        loss = model(input_ids=rows, labels=rows).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimiser.param_groups:
            group["lr"] = rate * min(1, (step + 1) / 15)
        optimiser.step()
        optimiser.zero_grad()
        noted += [(alarm.name, step) for alarm in watch.loss(step, float(loss.detach()))]
        follow(watch, largest, "loss")
    return {
        "run": number,
        "fault": fault,
        "every": interval,
        "alarms": noted,
        "loss": float(loss.detach()),
        "text": kind,
        "width": width,
        "blocks": blocks,
        "rate": rate,
        "largest": {name: value for name, value in largest.items() if math.isfinite(value)},
    }


def follow(watch: Watch, largest: dict[str, float], quantity: str) -> None:
    """Take up how much the latest reading changed, by each rule."""
    for rule in watch.rules:
        if (rule.quantity == "loss") != (quantity == "loss"):
            continue
        sites = [None] if quantity == "loss" else [row["site"] for row in watch.history[-1].sites]
        for site in sites:
            course = (
                watch.losses
                if site is None
                else [m.site(str(site)).number(rule.quantity) for m in watch.history]
            )
            change = rule.change([math.nan if value is None else value for value in course])
            if change is not None:
                largest[rule.name] = max(largest[rule.name], change)


def main() -> None:
    """Run what is missing, then print both tables."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    torch.set_num_threads(1)
    texts = {kind: tokens_of(kind) for kind in ("bytes", "zipf")}
    STORE.parent.mkdir(parents=True, exist_ok=True)
    have = [json.loads(line) for line in STORE.read_text().splitlines()] if STORE.exists() else []
    done = {(run["run"], run["fault"]) for run in have}
    injected = max(1, count // 5)
    plan: list[tuple[int, str | None]] = [(k, None) for k in range(count)]
    plan += [(1000 + k, None) for k in range(count)]
    for name in FAULTS:
        plan += [(2000 + k, name) for k in range(injected)]
    plan += [(3000 + k, "loss") for k in range(2 * injected)]
    with STORE.open("a") as store:
        for number, fault in plan:
            if (number, fault) not in done:
                have.append(trained(number, fault, texts))
                print(json.dumps(have[-1]), file=store, flush=True)
                print(f"\r{len(have)}/{len(plan)} runs   ", end="", file=sys.stderr, flush=True)
    rules = {name: ALARMS.build(name) for name in RULES}

    def alarmed(run: dict[str, Any]) -> bool:
        return any(run["largest"].get(name, -9) > rule.limit for name, rule in rules.items())

    def named_within_two(run: dict[str, Any], accepted: set[str]) -> bool:
        steps = [step for alarm, step in run["alarms"] if alarm in accepted]
        return any(AT <= step <= AT + 2 * run["every"] for step in steps)

    calibration = [run for run in have if run["fault"] is None and run["run"] < 1000]
    test = [run for run in have if run["fault"] is None and run["run"] >= 1000]
    rows = []
    for name, rule in rules.items():
        hurt = [run for run in have if run["fault"] == ("loss" if name == "rise" else name)]
        rows.append(
            {
                "rule": name,
                "limit": rule.limit,
                "largest_healthy": max(run["largest"].get(name, -9) for run in calibration),
                "largest_in_the_test": max(run["largest"].get(name, -9) for run in test),
                "false_alarms": sum(run["largest"].get(name, -9) > rule.limit for run in test),
                "of": len(test),
                "injected": len(hurt),
                "named_within_two": sum(named_within_two(run, {name}) for run in hurt),
                "any_rule": sum(named_within_two(run, set(rules)) for run in hurt),
            }
        )
    show(rows)
    print(
        f"healthy runs with any alarm: {sum(map(alarmed, test))} of {len(test)} in the test, "
        f"{sum(map(alarmed, calibration))} of {len(calibration)} in the calibration"
    )


if __name__ == "__main__":
    main()
