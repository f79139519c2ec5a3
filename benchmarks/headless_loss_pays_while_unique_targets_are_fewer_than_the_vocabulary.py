"""A headless loss pays while the unique targets of a batch are fewer than the vocabulary: where it
does, and where not

For each vocabulary V and number of rows K: seconds of the dense and unique forms and of gathered
cross-entropy (the faster of the chunked form and of the one that keeps its logits), and the ratio.
Where cross-entropy would need more than --limit GFLOP it is left out, and the contrastive forms are
measured alone. The lines below the table state the crossovers, the picture draws them.
"""

from __future__ import annotations

import argparse
import math

import torch
from _losses import machine, medians, problem

from headscan.training import pool_of

BASELINES = ["CE gathered, logits kept", "CE gathered, chunked"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument(
        "--limit", type=float, default=130, help="largest cross-entropy to run, in GFLOP"
    )
    parser.add_argument(
        "--vocabularies", type=int, nargs="+", default=[2_000, 10_000, 50_000, 100_000, 200_000]
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[256, 1_280, 4_096, 16_384])
    options = parser.parse_args()
    torch.set_num_threads(1)
    device, dtype = (
        ("cuda", torch.bfloat16) if torch.cuda.is_available() else ("cpu", torch.float32)
    )
    print(f"d = {options.width}, {machine()}\n")
    print(
        "| V | K | U | unique ms | sparse ms | dense ms | best CE ms | CE / unique | CE / sparse "
        "| dense / unique |"
    )
    print("|" + "---|" * 10)
    unique_loses = []
    dense_loses = []
    dense_wins = []
    gains: dict[int, list[tuple[int, float]]] = {}
    for vocabulary in options.vocabularies:
        for rows in options.rows:
            unique = len(pool_of(problem(rows, vocabulary, 1)[2]).ids)
            work = 6e-9 * rows * vocabulary * options.width
            product = 6e-9 * rows * rows * options.width
            names = ["CWT unique", "CWT unique, sparse gradient", "CWT dense"]
            fits = work <= options.limit
            if fits:
                names += BASELINES
            heaviest = work if fits else product
            repeats = 25 if heaviest < 2 else 3 if heaviest < 60 else 1
            seconds = medians(names, rows, vocabulary, options.width, repeats, device, dtype)
            headless, sparse, dense = (seconds[name] for name in names[:3])
            cell = f"V = {vocabulary:,}, K = {rows:,}"
            if headless > 1.05 * dense:
                dense_wins.append(cell)
            times = " | ".join(f"{1000 * value:.1f}" for value in (headless, sparse, dense))
            if not fits:
                print(
                    f"| {vocabulary:,} | {rows:,} | {unique:,} | {times} | {work:,.0f} GFLOP | | "
                    f"| {dense / headless:.2f} |",
                    flush=True,
                )
                continue
            best = min(seconds[name] for name in BASELINES)
            gains.setdefault(vocabulary, []).append((rows, best / sparse))
            if sparse > best:
                unique_loses.append(cell)
            if dense > best:
                dense_loses.append(cell)
            ratios = " | ".join(
                f"{value:.2f}" for value in (best / headless, best / sparse, dense / headless)
            )
            print(
                f"| {vocabulary:,} | {rows:,} | {unique:,} | {times} | {1000 * best:.1f} | "
                f"{ratios} |",
                flush=True,
            )
    print(f"\nUnique-token CWT does not pay at: {'; '.join(unique_loses) or 'no cell'}.")
    print(f"Dense CWT does not pay at: {'; '.join(dense_loses) or 'no cell'}.")
    print(f"Dense is faster than unique, by over 5 %, at: {'; '.join(dense_wins) or 'no cell'}.")
    print(
        "\nCross-entropy's time over that of unique-token CWT (sparse gradient), a decade each "
        "20 columns, `|` at 1:\n"
    )
    print("```")
    for vocabulary, points in gains.items():
        for rows, gain in points:
            print(f"V {vocabulary:>7,}  K {rows:>6,}  {drawn(gain)} {gain:.1f}")
    print("```")


def drawn(gain: float, decade: int = 20, lowest: float = 0.3) -> str:
    """A bar on a logarithmic axis that begins at `lowest`, with the line where the headless loss
    begins to pay.
    """
    length = max(1, round(decade * math.log10(max(gain, lowest) / lowest)))
    line = round(decade * math.log10(1 / lowest))
    bar = "#" * length + " " * max(0, line + 1 - length)
    return bar[:line] + "|" + bar[line + 1 :]


if __name__ == "__main__":
    main()
