"""Vanilla against headless on a text, several seeds, at equal tokens and at equal time; runs as
JSON.

    python scripts/compare_headless.py TEXT --out FOLDER [--recipe gpt] [--seeds 3] [--steps 400]
    [--vocabulary 4096] [--tied]

Interrupted, it goes on where it was: runs that are in FOLDER/runs.json are not done again.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import torch
from arms import HEADLESS_ARM, TIED, VANILLA, run_arm, summary
from rich.console import Console
from rich.table import Table

from headscan.text import Windows, documents
from headscan.training import PackedText, fit_tokenizer, recipe_of


def main() -> None:
    """Run what is missing, then print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
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
        steps=options.steps,
        batch=options.batch,
        vocabulary=options.vocabulary,
        warmup=options.steps // 10,
        rate=1e-3,
    )
    tokenizer = fit_tokenizer(documents(options.text), plan.vocabulary, context=plan.context)
    data, held_out_text = PackedText.of(Windows(options.text, tokenizer, plan.context)).split(0.05)
    held_out = held_out_text.rows[:128]
    print(
        f"V = {len(tokenizer):,}, {data.rows.size:,} training tokens, {held_out.size:,} held out",
        flush=True,
    )
    for seed in range(options.seeds):
        for arm in (VANILLA, HEADLESS_ARM, *([TIED] if options.tied else [])):
            name = f"{arm.name}/{seed}"
            if name in runs:
                continue
            # Headless goes on until it has had vanilla's time; its point at `steps` is the one of
            # equal tokens.
            time = runs[f"{VANILLA.name}/{seed}"][-1]["seconds"] if arm is HEADLESS_ARM else None
            runs[name] = run_arm(
                arm,
                plan,
                data,
                held_out,
                tokenizer,
                seed=seed,
                folder=str(options.out / "trainer"),
                interval=max(1, options.steps // 5),
                seconds=time,
                finetune=options.steps // 20,
            )
            aside = path.with_suffix(".new")
            aside.write_text(json.dumps(runs, indent=1))
            aside.replace(path)
            last = runs[name][-1]
            print(
                f"{name}: {last['step']} steps, {last['seconds']} s, {last['nats']}, load "
                f"{os.getloadavg()[0]:.1f}",
                flush=True,
            )
    last = [
        site["site"]
        for site in next(iter(runs.values()))[-1]["sites"]
        if site["site"].startswith("block.")
    ][-1]
    table = Table("arm", "at", "held-out nats", f"cosine, {last}", "cosine, final norm", "seeds")
    for arm in dict.fromkeys(name.rpartition("/")[0] for name in runs):
        arm_points = [points for name, points in runs.items() if name.rpartition("/")[0] == arm]
        points_at = {
            "equal tokens": [at_step(points, plan.steps) for points in arm_points],
            "equal time": [points[-1] for points in arm_points],
        }
        for label, points in points_at.items():
            nats = summary(point["nats"].get("bias", point["nats"].get("head")) for point in points)
            last_block = summary(cosine(point, last) for point in points)
            final_norm = summary(cosine(point, "final_norm") for point in points)
            table.add_row(
                arm, label, cell(nats), cell(last_block), cell(final_norm), str(nats["n"])
            )
    Console().print(table)


def at_step(points: list[dict[str, Any]], step: int) -> dict[str, Any]:
    """Return the point of a run at a step."""
    return next(point for point in points if point["step"] == step)


def cosine(point: dict[str, Any], site: str) -> float:
    """The average cosine of a site at one point of a run."""
    return next(entry["average_cosine"] for entry in point["sites"] if entry["site"] == site)


def cell(estimate: dict[str, Any]) -> str:
    """A mean and its 95 % interval over seeds."""
    interval = estimate["interval"]
    return f"{estimate['mean']:.3f}" + (
        f" [{interval[0]:.3f}, {interval[1]:.3f}]" if interval else ""
    )


if __name__ == "__main__":
    main()
