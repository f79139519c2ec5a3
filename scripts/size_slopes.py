"""Slopes over width of what a descent finds in one untrained Llama block: all tokens, and a token
whose output is hidden.

The article says that both rise with width. Random weights, five seeds a width, 20 prompts or more a
seed (7 at the widths of --few; always so many that 40 tokens a seed are scored); weighted least
squares on log2 of the width, the weights from each share's interval. A cell has its share, interval
and seconds; then stands the slope per doubling with its 95 % interval. With --models the slope is
over log2 of the parameters of trained models, at their first block; their texts and vocabularies
differ.

    python scripts/size_slopes.py [--widths 32 64 128 256 512 1024 2048] [--few 2048]
    python scripts/size_slopes.py --models stories260K smollm2 qwen
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from headscan_lab.ledger.experiments.descents import Recovered
from headscan_lab.ledger.proxies import ABOUT, lens_of

from headscan.statistics.uncertainty import student_quantile

TRAINED = {
    "all tokens, L1 (68)": Recovered(search=False),
    "all tokens, cosine (63)": Recovered(search=False, loss="cosine"),
}
ASKED = {
    "all tokens, L1 (68)": Recovered(model="llama", depth=1, search=False),
    "all tokens, cosine (63)": Recovered(model="llama", depth=1, search=False, loss="cosine"),
    "hidden first token, L2 (104)": Recovered(
        model="llama",
        depth=1,
        at="block.0[:, 1:, :]",
        length=5,
        scored="hidden",
        loss="l2",
        search=False,
    ),
    "words of hidden places among the answer, L2 (97)": Recovered(
        model="llama",
        depth=1,
        at="block.0[:, 3:, :]",
        length=6,
        scored="set",
        loss="l2",
        search=False,
    ),
}


def slope(sizes: list[int], values: list[float], errors: list[float]) -> tuple[float, float]:
    """Per doubling, and half its interval: weighted least squares, the residuals' own scale where
    it is above the errors'.
    """
    x = np.log2(sizes)
    y = np.array(values)
    w = 1 / np.square(np.maximum(errors, 1e-3))
    centre = (w * x).sum() / w.sum()
    spread = (w * (x - centre) ** 2).sum()
    gradient = float((w * (x - centre) * y).sum() / spread)
    residuals = y - (w * y).sum() / w.sum() - gradient * (x - centre)
    scale = max(1.0, float((w * residuals**2).sum() / (len(x) - 2)))
    return gradient, student_quantile(len(x) - 2) * float(np.sqrt(scale / spread))


def measured(name: str, experiment: Recovered, folder: Path) -> list[float]:
    """Share, ends of its interval, prompts of all seeds, processor seconds; read back where it is
    kept.
    """
    of = (
        Path(experiment.model).name
        if experiment.model not in ABOUT
        else f"{experiment.width}-{experiment.least}"
    )
    file = folder / f"{of}-{name.split('(')[1][:-1]}.json"
    if not file.is_file():
        start = time.process_time()
        effect = experiment.observe(0).effect
        assert effect is not None
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(
            json.dumps(
                [effect.value, *effect.interval, effect.prompts, time.process_time() - start]
            )
        )
    return list(json.loads(file.read_text()))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--widths", type=int, nargs="+", default=[32, 64, 128, 256, 512])
    parser.add_argument(
        "--few",
        type=int,
        nargs="*",
        default=[],
        help="Widths at which a seed has 7 prompts in place of 20.",
    )
    parser.add_argument(
        "--models", nargs="*", default=[], help="Folders of trained models, in place of widths."
    )
    parser.add_argument("--only", default="", help="Part of a row's name.")
    parser.add_argument("--kept", type=Path, default=Path("headscan-results/size-slopes"))
    options = parser.parse_args()
    widths = options.widths
    folder = options.kept
    torch.set_num_threads(1)
    sizes = [
        sum(parameter.numel() for parameter in lens_of(model).model.parameters())
        for model in options.models
    ] or widths
    print(
        "| what a descent finds (claim) | "
        + " | ".join(map("{:,}".format, sizes))
        + " | slope per doubling | seconds |"
    )
    print("|---" * (len(sizes) + 3) + "|")
    for name, experiment in (TRAINED if options.models else ASKED).items():
        if options.only not in name:
            continue
        experiments = [experiment.on(model) for model in options.models] or [
            replace(experiment, width=width, least=7 if width in options.few else 20)
            for width in widths
        ]
        rows = [measured(name, sized, folder) for sized in experiments if sized is not None]
        if len(rows) < len(sizes):
            parser.error(
                "one of the models is not causal, or its first block cannot be asked for alone"
            )
        fitted, reach = slope(
            sizes, [row[0] for row in rows], [(row[2] - row[1]) / 3.92 for row in rows]
        )
        cells = " | ".join(
            f"{row[0]:.3f} [{row[1]:.3f}, {row[2]:.3f}] ({row[3]:.0f})" for row in rows
        )
        last = f"{fitted:+.3f} [{fitted - reach:+.3f}, {fitted + reach:+.3f}]"
        print(f"| {name} | {cells} | {last} | {sum(row[4] for row in rows):.0f} |", flush=True)


if __name__ == "__main__":
    main()
