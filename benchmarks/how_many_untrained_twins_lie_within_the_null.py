"""How many of 100 pairs of independently initialised twins lie inside the null of random weights:
the goal is 95.

    python benchmarks/how_many_untrained_twins_lie_within_the_null.py [--pairs 100]

Each pair: two GPT-2s (d = 16, 2 blocks, bytes) with independent random weights read the same text;
`headscan compare` tests every measure at the last block against 19 draws of the first one's
weights. A measure is outside where p ≤ .05. Beside it the null of permuted windows, which such
twins do not lie within: they read the same tokens. And pairs of arrays that are unrelated in truth
against the permuted windows.
"""

from __future__ import annotations

import argparse
from collections import Counter

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel

import headscan
from headscan.model import ByteTokenizer, Lens

TEXT = (
    "The quick brown fox jumps over the lazy dog. A cat sat on the mat and slept until the "
    "evening came. " * 5
)


def twin(seed: int) -> Lens:
    torch.manual_seed(seed)
    config = GPT2Config(vocab_size=256, n_positions=32, n_embd=16, n_layer=2, n_head=2)
    return Lens(GPT2LMHeadModel(config).eval(), ByteTokenizer(), name=f"twin {seed}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=100)
    pairs = parser.parse_args().pairs
    torch.set_num_threads(1)
    inside: dict[str, Counter[str]] = {
        "random-init": Counter(),
        "permutation": Counter(),
        "unrelated arrays": Counter(),
    }
    for pair in range(pairs):
        models = [twin(1000 + 2 * pair), twin(1001 + 2 * pair)]
        result = headscan.compare(
            models,
            TEXT,
            context=16,
            sites="block.1",
            nulls="random-init,permutation",
            draws=19,
            seed=100_000 + 100 * pair,
            sample=256,
        )
        for cell in result.cells:
            for test in cell.tests:
                inside[test.null][cell.measure] += test.p is not None and test.p > 0.05
        rng = np.random.default_rng(pair)
        arrays = [rng.standard_normal((256, width)) for width in (12, 10)]
        for cell in headscan.compare(arrays, draws=19, sample=256, seed=pair).cells:
            inside["unrelated arrays"][cell.measure] += cell.p is not None and cell.p > 0.05
    names = list(result.measures)
    print(
        f"Inside the null, of {pairs} pairs:\n\n| null | {' | '.join(names)} "
        f"|\n|---|{'---|' * len(names)}"
    )
    for null, counts in inside.items():
        print(f"| {null} | {' | '.join(str(counts[name]) for name in names)} |")


if __name__ == "__main__":
    main()
