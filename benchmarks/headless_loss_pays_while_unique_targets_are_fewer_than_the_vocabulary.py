"""A headless loss pays while the unique targets of a batch are fewer than the vocabulary: where it does, and where not

For each vocabulary V and number of rows K: seconds of the dense and unique forms and of gathered cross-entropy (the
faster of torch's fused and of the form that keeps its logits), and the ratio. Cells whose cross-entropy would need more
than --limit GFLOP are left out, and say so. Two lines below the table state the crossovers.
"""

from __future__ import annotations

import argparse

import torch
from _losses import machine, medians, problem

from headscan.training import pool_of

BASELINES = ["CE gathered, logits kept", "CE gathered, chunked"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--limit", type=float, default=700, help="largest cross-entropy to run, in GFLOP")
    parser.add_argument("--vocabularies", type=int, nargs="+", default=[2_000, 10_000, 50_000, 100_000, 200_000])
    parser.add_argument("--rows", type=int, nargs="+", default=[256, 1_280, 4_096, 16_384])
    options = parser.parse_args()
    torch.set_num_threads(1)
    device, dtype = ("cuda", torch.bfloat16) if torch.cuda.is_available() else ("cpu", torch.float32)
    print(f"d = {options.width}, {machine()}\n")
    print("| V | K | U | unique ms | sparse ms | dense ms | best CE ms | CE / unique | CE / sparse | dense / unique |")
    print("|" + "---|" * 10)
    unique_loses, dense_loses, dense_wins = [], [], []
    for vocabulary in options.vocabularies:
        for rows in options.rows:
            unique = len(pool_of(problem(rows, vocabulary, 1)[2]).ids)
            work = 6e-9 * rows * vocabulary * options.width
            if work > options.limit:
                print(f"| {vocabulary:,} | {rows:,} | {unique:,} | left out: {work:,.0f} GFLOP |" + " |" * 6)
                continue
            names = ["CWT unique", "CWT unique, sparse gradient", "CWT dense", *BASELINES]
            repeats = 25 if work < 2 else 3 if work < 60 else 1
            seconds = medians(names, rows, vocabulary, options.width, repeats, device, dtype)
            best = min(seconds[name] for name in BASELINES)
            own, sparse, dense = (seconds[name] for name in names[:3])
            cell = f"V = {vocabulary:,}, K = {rows:,}"
            if sparse > best:
                unique_loses.append(cell)
            if dense > best:
                dense_loses.append(cell)
            if own > 1.05 * dense:
                dense_wins.append(cell)
            times = " | ".join(f"{1000 * each:.1f}" for each in (own, sparse, dense, best))
            ratios = " | ".join(f"{each:.2f}" for each in (best / own, best / sparse, dense / own))
            print(f"| {vocabulary:,} | {rows:,} | {unique:,} | {times} | {ratios} |", flush=True)
    print(f"\nUnique-token CWT does not pay at: {'; '.join(unique_loses) or 'no cell'}.")
    print(f"Dense CWT does not pay at: {'; '.join(dense_loses) or 'no cell'}.")
    print(f"Dense is faster than unique, by over 5 %, at: {'; '.join(dense_wins) or 'no cell'}.")


if __name__ == "__main__":
    main()
