"""Vanilla against headless on a text, several seeds, at equal tokens and at equal time; results as JSON.

    python scripts/compare_headless.py TEXT --out FOLDER [--recipe gpt] [--seeds 3] [--steps 400] [--vocabulary 4096] [--tied]

Interrupted, it goes on where it was: runs that are in FOLDER/runs.json are not done again.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import torch
from rich.console import Console

from headscan.text import Windows, documents
from headscan.training import PackedText, fit_tokenizer, recipe_of
from headscan.training.experiment import HEADLESS_ARM, TIED, VANILLA, run_arm
from headscan.training.twins import TwinsResult


def main() -> None:
    """Run what is missing, then print the table and write result.json and report.html."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--vocabulary", type=int, default=4096)
    parser.add_argument("--recipe", default="gpt", help="gpt or mixer")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--tied", action="store_true", help="add the arm whose head is tied")
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "runs.json"
    runs = json.loads(path.read_text()) if path.exists() else {}
    plan = recipe_of(options.recipe).but(
        steps=options.steps, batch=options.batch, vocabulary=options.vocabulary, warmup=options.steps // 10, rate=1e-3
    )
    words = fit_tokenizer(documents(options.text), plan.vocabulary, context=plan.context)
    data, kept = PackedText.of(Windows(options.text, words, plan.context)).split(0.05)
    held_out = kept.rows[:128]
    print(f"V = {len(words):,}, {data.rows.size:,} training tokens, {held_out.size:,} held out", flush=True)
    for seed in range(options.seeds):
        for arm in (VANILLA, HEADLESS_ARM, *([TIED] if options.tied else [])):
            name = f"{arm.name}/{seed}"
            if name in runs:
                continue
            # Headless goes on until it has had vanilla's time; its point at `steps` is the one of equal tokens.
            time = runs[f"{VANILLA.name}/{seed}"][-1]["seconds"] if arm is HEADLESS_ARM else None
            runs[name] = run_arm(
                arm, plan, data, held_out, words, seed=seed, folder=str(options.out / "trainer"),
                every=max(1, options.steps // 5), seconds=time, finetune=options.steps // 20,
            )  # fmt: skip
            aside = path.with_suffix(".new")
            aside.write_text(json.dumps(runs, indent=1))
            aside.replace(path)
            last = runs[name][-1]
            print(
                f"{name}: {last['step']} steps, {last['seconds']} s, {last['nats']}, load {os.getloadavg()[0]:.1f}",
                flush=True,
            )
    protocol = {"text": Path(options.text).name, "steps": plan.steps, "batch": plan.batch, "context": plan.context}
    protocol |= {
        "vocabulary": len(words),
        "rate": plan.rate,
        "recipe": plan.name,
        "training_tokens": int(data.rows.size),
    }
    found = [
        {"arm": name.rpartition("/")[0], "seed": int(name.rpartition("/")[2]), "points": points}
        for name, points in runs.items()
    ]
    result = TwinsResult.of(found, protocol)
    result.save(options.out)
    Console().print(result.table())


if __name__ == "__main__":
    main()
