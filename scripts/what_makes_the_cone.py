"""What makes the cone strong? Average cosine of the last block early and later in training, by
vocabulary and by head.

    python scripts/what_makes_the_cone.py TEXT --out FOLDER [--vocabularies 1024 4096 16384]
        [--steps 160] [--regularisers cosine:1 cosine-states:1 isoscore:1]

Three arms a vocabulary: vanilla (untied head), vanilla whose head has a bias started at the
log-unigram, headless. If the cone is where a head without a bias keeps the unigram distribution,
the second arm has none either. Each regulariser adds an arm: vanilla with that term in its loss.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import torch
from arms import BIASED, HEADLESS_ARM, VANILLA, run_arm

from headscan.text import Windows, documents
from headscan.training import PackedText, fit_tokenizer, recipe_of


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("text")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--vocabularies", type=int, nargs="+", default=[1024, 4096, 16384])
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--regularisers", nargs="*", default=[], metavar="NAME:STRENGTH")
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "cone.json"
    runs = json.loads(path.read_text()) if path.exists() else {}
    print("| V | arm | step | held-out nats | cosine, last block | cosine, final norm |")
    print("|---|---|---|---|---|---|")
    for vocabulary in options.vocabularies:
        plan = recipe_of("gpt").but(
            steps=options.steps, vocabulary=vocabulary, warmup=40, rate=1e-3
        )
        tokenizer = fit_tokenizer(documents(options.text), vocabulary, context=plan.context)
        data, held_out_text = PackedText.of(Windows(options.text, tokenizer, plan.context)).split(
            0.05
        )
        added = [
            replace(VANILLA, name=f"vanilla, {term}", regulariser=term)
            for term in options.regularisers
        ]
        for arm in (VANILLA, BIASED, HEADLESS_ARM, *added):
            name = f"{vocabulary}/{arm.name}/{options.seed}"
            if name not in runs:
                runs[name] = run_arm(
                    arm,
                    plan,
                    data,
                    held_out_text.rows[:128],
                    tokenizer,
                    seed=options.seed,
                    folder=str(options.out / "trainer"),
                    interval=max(1, options.steps // 4),
                )
                path.write_text(json.dumps(runs, indent=1))
            for point in runs[name]:
                nats = point["nats"].get("bias", point["nats"].get("head"))
                last, norm = (point["sites"][index]["average_cosine"] for index in (-3, -2))
                print(
                    f"| {vocabulary:,} | {arm.name} | {point['step']} | {nats:.3f} | {last:.3f} | "
                    f"{norm:.3f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
