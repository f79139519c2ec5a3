"""Getting a head back, at several vocabularies and widths: held-out loss by each way of reading a
headless model out.

    python scripts/head_recovery.py TEXT --out FOLDER [--steps 200] [--cells 4096/64 4096/256]

Vanilla (untied head) and headless see the same tokens. Then the headless body is read out: tied
rows; with the log-unigram bias, untrained; a probe on the frozen body and full fine-tuning, both
with a tenth of the steps more (so more tokens).
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import torch
from arms import HEADLESS_ARM, VANILLA, run_arm
from transformers import GPTNeoXConfig

from headscan.text import Windows, documents
from headscan.training import (
    PackedText,
    Recipe,
    fit_head,
    fit_tokenizer,
    perplexity,
    recipe_of,
    recover_head,
)

CELLS = ["4096/128", "1024/128", "16384/128", "4096/64", "4096/256"]
RATE = {"probe": 1e-3, "finetune": 3e-4}


def plan_of(vocabulary: int, width: int, steps: int) -> Recipe:
    """The tiny GPT at another width."""

    def architecture(size: int, context: int) -> GPTNeoXConfig:
        return GPTNeoXConfig(
            vocab_size=size,
            hidden_size=width,
            num_hidden_layers=4,
            num_attention_heads=4,
            intermediate_size=4 * width,
            max_position_embeddings=context,
            bos_token_id=0,
            eos_token_id=0,
        )

    plan = recipe_of("gpt").but(steps=steps, vocabulary=vocabulary, warmup=steps // 5, rate=1e-3)
    return replace(plan, architecture=architecture)


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("text")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--cells", nargs="+", default=CELLS, metavar="V/d", help="vocabularies and widths"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "recovery.json"
    stored = json.loads(path.read_text()) if path.exists() else {}
    print(
        "| V | d | vanilla | tied | bias | probe | fine-tuned |\n|---|---|---|---|---|---|---|",
        flush=True,
    )
    for cell in options.cells:
        vocabulary, width = map(int, cell.split("/"))
        name = f"{vocabulary}/{width}/{options.seed}"
        if name not in stored:
            plan = plan_of(vocabulary, width, options.steps)
            tokenizer = fit_tokenizer(documents(options.text), vocabulary, context=plan.context)
            data, held_out_text = PackedText.of(
                Windows(options.text, tokenizer, plan.context)
            ).split(0.05)
            rows = held_out_text.rows[:128]
            counts = data.counts(len(tokenizer))
            common = {
                "seed": options.seed,
                "folder": str(options.out / "trainer"),
                "interval": options.steps,
            }
            vanilla = run_arm(VANILLA, plan, data, rows, tokenizer, **common)[-1]["nats"]["head"]
            bodies: list = []
            nats = run_arm(HEADLESS_ARM, plan, data, rows, tokenizer, keep=bodies, **common)[-1][
                "nats"
            ]
            for mode, rate in RATE.items():
                recovered = recover_head(bodies[0], mode, counts=counts)
                fit_head(
                    recovered,
                    data.rows,
                    steps=options.steps // 10,
                    batch=plan.batch,
                    rate=rate,
                    seed=options.seed,
                )
                nats[mode] = perplexity(recovered, rows).nats_per_token
            stored[name] = {"vanilla": vanilla} | nats
            path.write_text(json.dumps(stored, indent=1))
        cells = " | ".join(
            f"{stored[name][key]:.3f}" for key in ("vanilla", "tied", "bias", "probe", "finetune")
        )
        print(f"| {vocabulary:,} | {width} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
