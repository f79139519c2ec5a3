"""How often the 95 % intervals of a comparison hold what endless text would give.

    python benchmarks/comparisons_cover.py [--texts 100]

A text is 40 documents of 20 tokens; tokens of a document share a part of both sides (width 12 and
10), so they are not independent. The truth of measures made of covariances is that of 20,000 such
documents; of measures of the sample, which depend on its size, the mean over all texts.
"""

from __future__ import annotations

import argparse
from collections import defaultdict

import numpy as np
import torch

import headscan

MAP = np.random.default_rng(7).standard_normal((12, 10)) / 12**0.5


def text(documents: int, seed: int) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    shared = np.repeat(rng.standard_normal((documents, 12)), 20, axis=0)
    x = (0.7 * shared + rng.standard_normal((20 * documents, 12))) * np.geomspace(3, 0.3, 12)
    y = x @ MAP + 0.6 * rng.standard_normal((20 * documents, 10))
    number = np.repeat(np.arange(documents), 20)
    return [{"vectors": x, "documents": number}, {"vectors": y, "documents": number}]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--texts", type=int, default=100)
    texts = parser.parse_args().texts
    torch.set_num_threads(1)
    cells_by_measure = defaultdict(list)
    for seed in range(texts):
        for cell in headscan.compare(text(40, seed), draws=19, sample=800).cells:
            cells_by_measure[cell.measure].append(
                (cell.value, *(cell.interval or (np.nan, np.nan)))
            )
    large = headscan.compare(
        text(20_000, 10**6), draws=19, sample=64, measures="cka,procrustes,svcca,linear"
    )
    truth = {cell.measure: cell.value for cell in large.cells}
    print("| measure | truth | mean | covered | width |\n|---|---|---|---|---|")
    for name, rows in cells_by_measure.items():
        value, low, high = np.array(rows).T
        true = truth.get(name, value.mean())
        covered = np.mean((low <= true) & (true <= high))
        width = np.mean(high - low)
        print(f"| {name} | {true:.4f} | {value.mean():.4f} | {covered:.2f} | {width:.4f} |")


if __name__ == "__main__":
    main()
