"""Exact inversion recovers every token with a certificate, from 8 to 14 candidates a token in the
mean by the table.

Two trained models and two with random weights (d = 256, V = 4,096), at the first, the middle and
the last block, 50 prompts of 8 tokens each from TinyStories; beside the cached table with its
anchors, the orders "frequency" and "random" (brute force) on the first 10 prompts. Candidates are
counted until the right token is verified; those tried afterwards for the certificate are in the
last column. Seconds are processor seconds of one thread.
"""

from __future__ import annotations

import statistics
import sys
import time

import torch
from _inversion import ASSETS, prompts_of, random_model

from headscan.inversion import Search, exact
from headscan.inversion.reconstruction import accepted, accepts, relative
from headscan.inversion.table import table_of
from headscan.model import Lens
from headscan.model.slicing import Slice

LENGTH = 8


def row(name: str, cut, ids: torch.Tensor, search: Search) -> str:
    target = cut.run(ids)
    start = time.process_time()
    table_of(cut)
    built = time.process_time() - start
    start = time.process_time()
    inversions = exact(cut, list(target), search)
    seconds = (time.process_time() - start) / len(ids)
    tokens = torch.tensor([inversion.tokens for inversion in inversions])
    tried = [count for inversion in inversions for count in inversion.evaluations]
    residual = relative(cut.run(tokens), target).amax(1)
    sole = sum(
        accepts(float(r), accepted(cut))
        and not any(step.evidence.within for step in inversion.steps)
        for r, inversion in zip(residual, inversions, strict=True)
    )
    steps = [step for inversion in inversions for step in inversion.steps]
    margin = min(step.evidence.runner_up for step in steps)
    after_match = sum(step.evidence.count - step.evaluations for step in steps) / ids.numel()
    return (
        f"| {name} | {cut.sites[0]} | {search.order} | {len(ids)} | "
        f"{float((tokens == ids).float().mean()):.2%} | {sole} | {statistics.median(tried):.0f} | "
        f"{sum(tried) / len(tried):.0f} | {max(tried)} | {margin:.2f} | {1000 * seconds:.0f} ms | "
        f"{built:.2f} s | {after_match:.0f} |"
    )


def main() -> None:
    torch.set_num_threads(1)
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    print(
        "| model | at | order | prompts | tokens recovered | no other tried fits | median | mean "
        "| most candidates | smallest margin | a prompt | table | for the certificate |"
    )
    print("|" + "---|" * 13)
    for name in ("stories260K", "babyllama-tok105", "gpt2", "llama"):
        lens = (
            random_model(name)
            if name in ("gpt2", "llama")
            else Lens.load(str(ASSETS / "models" / name))
        )
        ids = prompts_of(lens, count, LENGTH)
        shown = f"random {name}" if name in ("gpt2", "llama") else name
        for block in sorted({0, (lens.depth - 1) // 2, lens.depth - 1}):
            cut = Slice(sites=(f"block.{block}",)).on(lens)
            print(row(shown, cut, ids, Search()), flush=True)
        for order in ("random",):
            print(row(shown, cut, ids[:10], Search(order=order, neighbours=0)), flush=True)


if __name__ == "__main__":
    main()
