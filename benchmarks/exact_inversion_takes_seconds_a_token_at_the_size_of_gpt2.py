"""Exact inversion takes at most 5 s a token at the size of GPT-2 small, after one table.

Random weights, 12 blocks, d = 768, V = 50,257, random prompts of 8 tokens, two threads. The table
(two passes of the vocabulary: alone, and after a short text) is built once a model and slice and
kept on disk; its time is given apart, for 1, 6 and 12 blocks. Wall clock, and processor seconds of
all threads beside it, which a busy machine changes less. Brute force tries half of the vocabulary
on average, a quarter of the table's work. Arguments: prompts, threads, vocabulary, depths.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time

import torch
from _inversion import prompts_of, random_model

from headscan.inversion import Search, exact
from headscan.inversion.table import table_of
from headscan.model.slicing import Slice

LENGTH = 8


def report_progress(stage: str, done: int, total: int | None, unit: str) -> None:
    """Progress, on a line of standard error that is written again and again."""
    print(f"\r{stage} {done}/{total} {unit}", end="", file=sys.stderr)


def main() -> None:
    torch.set_num_threads(int(sys.argv[2]) if len(sys.argv) > 2 else 2)
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    vocabulary = int(sys.argv[3]) if len(sys.argv) > 3 else 50257
    depths = sys.argv[4] if len(sys.argv) > 4 else "1,6,12"
    lens = random_model("gpt2", vocabulary=vocabulary, width=768, depth=12, heads=12)
    ids = prompts_of(lens, count, LENGTH)
    print(
        "| V | blocks | table | a token | processor s a token | accuracy | candidates a token, "
        "mean | most | brute force a token, extrapolated |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for depth in map(int, depths.split(",")):
        cut = Slice(sites=(f"block.{depth - 1}",)).on(lens)
        target = cut.run(ids)
        start = time.perf_counter()
        table_of(cut, progress=report_progress)
        built = time.perf_counter() - start
        start = time.perf_counter()
        busy = time.process_time()
        inversions = exact(cut, list(target), Search())
        spent = (time.perf_counter() - start) / ids.numel()
        busy = (time.process_time() - busy) / ids.numel()
        tried = [n for inversion in inversions for n in inversion.evaluations]
        right = float(
            (torch.tensor([inversion.tokens for inversion in inversions]) == ids).float().mean()
        )
        print(
            f"| {vocabulary} | {depth} | {built:.1f} s | {spent:.2f} s | {busy:.2f} | {right:.2f} "
            f"| {sum(tried) / len(tried):.0f} | {max(tried)} | {built / 4:.1f} s |",
            flush=True,
        )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as os.environ[
        "HEADSCAN_CACHE"
    ]:  # the table is built, not read
        main()
