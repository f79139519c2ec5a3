"""Masked mixers against transformers on a text: loss, retrieval by InfoNCE and recall of hidden
tokens, several seeds.

    python scripts/mixers_against_transformers.py TEXT --out FOLDER [--seeds 3] [--steps 400]
    [--mixings flat]

Both sides have the same width, depth, tokenizer, batches and optimizer, each its own best of four
learning rates (one seed, a quarter of the steps). The slower side's processor time is what both get
in the comparison at equal time. The bodies at equal tokens are then asked two things: which second
half of a story belongs to a first half, after a short InfoNCE training (the best of three rates by
its loss, each model its own); and what their outputs still hold of a token whose own output is
hidden. Interrupted, it goes on where it was: runs that are in FOLDER/runs.json are not done again.
"""

from __future__ import annotations

import argparse
import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from arms import VANILLA, run_arm, summary
from headscan_lab.ledger.experiments.mixers import recall
from retrieval import halves, retrieval_accuracy, train_retrieval
from transformers import PreTrainedConfig

from headscan.model.mixer import MixerConfig
from headscan.text import Windows, documents
from headscan.training import PackedText, Recipe, fit_tokenizer, recipe_of
from headscan.training.heads import body_of

RATES = (1e-3, 2e-3, 4e-3, 8e-3)
RETRIEVAL_RATES = (1e-4, 3e-4, 1e-3)
WIDTH = 128
BLOCKS = 4
TRANSFORMER = "transformer"


def plan_of(kind: str, steps: int, rate: float) -> Recipe:
    """The run of one side: "transformer" (GPT-NeoX) or a mixer by its mixing."""
    plan = recipe_of("gpt").but(
        steps=steps, rate=rate, warmup=max(1, steps // 10), context=128, batch=8
    )
    if kind == TRANSFORMER:
        return plan

    def architecture(vocabulary: int, context: int) -> PreTrainedConfig:
        return MixerConfig(
            vocab_size=vocabulary,
            hidden_size=WIDTH,
            num_hidden_layers=BLOCKS,
            max_position_embeddings=context,
            mixing=kind,
            final_norm=True,
        )

    return replace(plan, name="mixer", architecture=architecture)


def scores_of(model: Any, data: PackedText, held_out: PackedText, seed: int) -> dict[str, Any]:
    """Return what the trained body retrieves, and what it recalls of a hidden first token."""
    body = copy.deepcopy(body_of(model)).eval().requires_grad_(False)
    recalled = recall(body, first=1, seed=seed, ids=torch.from_numpy(held_out.rows[:6, :16]).long())
    tried = []
    for rate in RETRIEVAL_RATES:
        searcher = copy.deepcopy(model)
        losses = train_retrieval(
            searcher, *halves(data.rows), steps=100, batch=32, rate=rate, seed=seed
        )
        tried.append(
            (sum(losses[-10:]) / 10, rate, retrieval_accuracy(searcher, *halves(held_out.rows)))
        )
    loss, rate, accuracy = min(tried)
    return {
        "recall": {
            "own": float(recalled.visible.mean()),
            "hidden": float(recalled.hidden.mean()),
            "exact": float(recalled.exact.mean()),
            "margin": recalled.margin,
            "count": recalled.hidden.shape[1],
        },
        "retrieval": accuracy,
        "infonce": loss,
        "retrieval_rate": rate,
    }


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("text")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--vocabulary", type=int, default=4096)
    parser.add_argument(
        "--mixings", nargs="+", default=["flat"], help="flat, expanded, parallel, heads"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "runs.json"
    runs = json.loads(path.read_text()) if path.exists() else {}
    tokenizer = fit_tokenizer(documents(options.text), options.vocabulary, context=128)
    data, held_out_text = PackedText.of(Windows(options.text, tokenizer, 128)).split(0.1)
    held_out = held_out_text.rows[:100]
    common = {"folder": str(options.out / "trainer")}

    def run(name: str, make: Any) -> Any:
        if name not in runs:
            runs[name] = make()
            path.write_text(json.dumps(runs, indent=1))
            print(name, json.dumps(runs[name])[:400], flush=True)
        return runs[name]

    kinds = [TRANSFORMER, *options.mixings]
    rates = {}
    for kind in kinds:
        tried = {}
        for rate in RATES:
            plan = plan_of(kind, options.steps // 4, rate)
            points = run(
                f"rate/{kind}/{rate}",
                lambda plan=plan: run_arm(
                    VANILLA, plan, data, held_out, tokenizer, seed=0, interval=plan.steps, **common
                ),
            )
            tried[rate] = points[-1]["nats"]["head"]
        rates[kind] = min(tried, key=tried.__getitem__)
    for seed in range(options.seeds):
        for kind in kinds:
            plan = plan_of(kind, options.steps, rates[kind])

            def make(plan: Recipe = plan, seed: int = seed) -> dict[str, Any]:
                models: list[Any] = []
                points = run_arm(
                    VANILLA,
                    plan,
                    data,
                    held_out,
                    tokenizer,
                    seed=seed,
                    interval=plan.steps // 4,
                    keep=models,
                    **common,
                )
                return {"points": points, "asked": scores_of(models[0], data, held_out_text, seed)}

            run(f"tokens/{kind}/{seed}", make)
        slowest = max(runs[f"tokens/{kind}/{seed}"]["points"][-1]["seconds"] for kind in kinds)
        for kind in kinds:
            points = runs[f"tokens/{kind}/{seed}"]["points"]
            if points[-1]["seconds"] > 0.97 * slowest:
                run(f"time/{kind}/{seed}", lambda points=points: points)
            else:
                plan = plan_of(kind, options.steps, rates[kind])
                run(
                    f"time/{kind}/{seed}",
                    lambda plan=plan, seed=seed, slowest=slowest: run_arm(
                        VANILLA,
                        plan,
                        data,
                        held_out,
                        tokenizer,
                        seed=seed,
                        interval=10**9,
                        seconds=slowest,
                        **common,
                    ),
                )

    def over_seeds(kind: str, value: Any) -> str:
        estimate = summary(value(kind, seed) for seed in range(options.seeds))
        low, high = estimate["interval"] or (float("nan"),) * 2
        return f"{estimate['mean']:.3f} [{low:.3f}, {high:.3f}]"

    def asked_of(key: str) -> Any:
        return lambda kind, seed: runs[f"tokens/{kind}/{seed}"]["asked"][key]

    def recalled(key: str) -> Any:
        return lambda kind, seed: runs[f"tokens/{kind}/{seed}"]["asked"]["recall"][key]

    def last(how: str, key: str) -> Any:
        def value(kind: str, seed: int) -> float:
            entry = runs[f"{how}/{kind}/{seed}"]
            point = (entry if how == "time" else entry["points"])[-1]
            return point["nats"]["head"] if key == "nats" else point[key]

        return value

    rows = {
        "held-out nats, equal tokens": last("tokens", "nats"),
        "held-out nats, equal time": last("time", "nats"),
        "steps in equal time": last("time", "step"),
        "retrieval, top-1 of 32": asked_of("retrieval"),
        "InfoNCE at the end": asked_of("infonce"),
        "visible tokens by gradient": recalled("own"),
        "hidden first token by gradient": recalled("hidden"),
        "hidden first token by search": recalled("exact"),
    }
    print(
        f"\n{len(tokenizer):,} tokens, {data.rows.size:,} training, {held_out.size:,} held out; "
        f"rates {rates}\n"
    )
    print(f"| | {' | '.join(kinds)} |\n|---|{'---|' * len(kinds)}")
    for name, value in rows.items():
        print(f"| {name} | {' | '.join(over_seeds(kind, value) for kind in kinds)} |")


if __name__ == "__main__":
    main()
