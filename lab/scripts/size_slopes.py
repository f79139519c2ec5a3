"""Slopes over width of what a descent finds in one untrained Llama block: all tokens, and a token whose output is hidden.

The article says that both rise with width. Random weights, five seeds a width, 20 prompts or more a seed; weighted least squares
on log2 of the width, the weights from each share's interval. A line a width, then the slope per doubling with its 95 % interval.

    python lab/scripts/size_slopes.py [--widths 32 64 128 256 512]
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from headscan_lab.ledger.experiments.descents import Recovered

from headscan.statistics.uncertainty import student_quantile

ASKED = {
    "all tokens, L1 (68)": Recovered(model="llama", depth=1, search=False),
    "all tokens, cosine (63)": Recovered(model="llama", depth=1, search=False, loss="cosine"),
    "hidden first token, L2 (104)": Recovered(
        model="llama", depth=1, at="block.0[:, 1:, :]", length=5, scored="hidden", loss="l2", search=False
    ),
    "words of hidden places among the answer, L2 (97)": Recovered(
        model="llama", depth=1, at="block.0[:, 3:, :]", length=6, scored="set", loss="l2", search=False
    ),
}


def slope(widths: list[int], values: list[float], errors: list[float]) -> tuple[float, float]:
    """Per doubling, and half its interval: weighted least squares, the residuals' own scale where it is above the errors'."""
    x, y, w = np.log2(widths), np.array(values), 1 / np.square(np.maximum(errors, 1e-3))
    centre = (w * x).sum() / w.sum()
    spread = (w * (x - centre) ** 2).sum()
    found = float((w * (x - centre) * y).sum() / spread)
    rest = y - (w * y).sum() / w.sum() - found * (x - centre)
    scale = max(1.0, float((w * rest**2).sum() / (len(x) - 2)))
    return found, student_quantile(len(x) - 2) * float(np.sqrt(scale / spread))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--widths", type=int, nargs="+", default=[32, 64, 128, 256, 512])
    widths = parser.parse_args().widths
    torch.set_num_threads(1)
    print("| what a descent finds (claim) | " + " | ".join(map(str, widths)) + " | slope per doubling | seconds |")
    print("|---" * (len(widths) + 3) + "|")
    for name, asked in ASKED.items():
        start = time.process_time()
        seen = [type(asked)(**{**vars(asked), "width": width}).observe(0).effect for width in widths]
        values = [one.value for one in seen if one is not None]
        errors = [(one.interval[1] - one.interval[0]) / 3.92 for one in seen if one is not None]
        found, reach = slope(widths, values, errors)
        cells = " | ".join(f"{one.value:.3f} [{one.interval[0]:.3f}, {one.interval[1]:.3f}]" for one in seen if one is not None)
        seconds = time.process_time() - start
        print(f"| {name} | {cells} | {found:+.3f} [{found - reach:+.3f}, {found + reach:+.3f}] | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
