"""What gradient descent, Adam, SignGD and Muon make of free features: cone, spectrum and steps,
where their losses are equal.

    python scripts/free_features.py [--seeds 5] [--width 32]

Words and contexts are trained freely on the soft labels of a text's contexts of one token
(`theory.train_features`, full batch), at two rates each, and are read where CE - H first falls to
0.3 and to 0.03 nats. Three languages, which a seed draws anew: 200 stories of a small grammar,
whose tokens are frequent and rare; the same with every context once; and random supports in which
every token is as frequent as any other, up to chance.

Printed are, for each language and loss, the ranges over seeds and rates, and below them every
difference between two optimisers that has one sign throughout: each seed's numbers of one, at
either rate, are above that seed's numbers of the other, at either.

- steps: full-batch steps to the loss. contexts, words: average cosine of the rows of H and W (each
  row once).
- weighted: the same of contexts, pairs weighted by how often both occur, as a scan of a text would
  see them.
- rank: effective rank of H. first, 2 to 9, rest: shares of the energy of the logits, less each
  context's mean, by singular value.
"""

import argparse
from collections.abc import Callable
from itertools import chain, permutations

import numpy as np
import numpy.typing as npt
from headscan_lab import theory
from headscan_lab.theory.features import FeatureOptimiser, FeatureRun
from story_grammar import story_labels

import headscan
from headscan.ntp import SoftLabels

RATES: dict[FeatureOptimiser, tuple[float, float]] = {
    "gd": (0.02, 0.1),
    "adam": (0.003, 0.01),
    "signgd": (0.001, 0.003),
    "muon": (0.003, 0.01),
}
Results = dict[FeatureOptimiser, list[list[dict[str, float]]]]
"""For each optimiser and seed, the numbers at each learning rate."""
DECIMALS = {"steps": 0, "rank": 1}
LOSSES = (0.3, 0.03)
STEPS = 20_000  # at most
TOKENS = 77  # as the stories have
LANGUAGES: dict[str, Callable[[int], SoftLabels]] = {
    "stories": lambda seed: story_labels(1, 200, seed)[1],
    "stories, every context once": lambda seed: SoftLabels.from_probability(
        story_labels(1, 200, seed)[1].dense()
    ),
    "tokens of equal frequency": lambda seed: theory.random_labels(
        TOKENS, TOKENS, sizes=(1, 6), seed=seed
    ),
}


def weighted_cosine(rows: npt.NDArray[np.float64], often: npt.NDArray[np.float64]) -> float:
    """Mean cosine over ordered pairs of distinct rows, each pair weighted by the product of its
    shares.

    >>> weighted_cosine(np.array([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]]), np.array([0.5, 0.5, 0.0]))
    1.0
    """
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    self_weight = float((often**2).sum())
    return (float(((often @ unit) ** 2).sum()) - self_weight) / (1 - self_weight)


def numbers_of(run: FeatureRun, labels: SoftLabels) -> dict[str, float]:
    """The columns of the table, of one run."""
    energies = np.linalg.svd(run.logits - run.logits.mean(1, keepdims=True), compute_uv=False) ** 2
    shares = energies / energies.sum()
    return {
        "steps": run.records[-1].step,
        "contexts": headscan.average_cosine(run.contexts) or 0.0,
        "weighted": weighted_cosine(run.contexts, labels.prior),
        "words": headscan.average_cosine(run.words) or 0.0,
        "rank": headscan.effective_rank(run.contexts) or 0.0,
        "first": float(shares[0]),
        "2 to 9": float(shares[1:9].sum()),
        "rest": float(shares[9:].sum()),
    }


def main() -> None:
    """Print a table for every language and loss."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--width", type=int, default=32)
    options = parser.parse_args()
    for language, draw in LANGUAGES.items():
        drawn = [draw(seed) for seed in range(options.seeds)]
        for loss in LOSSES:
            results: Results = {}
            for name in RATES:
                results[name] = [
                    _numbers(name, labels, loss, options.width, seed)
                    for seed, labels in enumerate(drawn)
                ]
            print(
                f"\n{language}, {loss:g} nats above the entropy, width {options.width}, seeds 0 "
                f"to {options.seeds - 1}\n"
            )
            _print(results)


def _numbers(
    name: FeatureOptimiser, labels: SoftLabels, loss: float, width: int, seed: int
) -> list[dict[str, float]]:
    """The numbers of one seed, an item for each learning rate. The script ends where a run does not
    reach the loss.
    """
    rows = []
    for rate in RATES[name]:
        run = theory.train_features(
            labels,
            width,
            STEPS,
            optimiser=name,
            learning_rate=rate,
            init=0.02,
            seed=seed,
            checkpoints=[],
            until=loss,
        )
        if run.records[-1].excess > loss + 1e-9:
            raise SystemExit(
                f"{name} at the rate {rate:g} does not come to {loss:g} nats above the entropy in "
                f"{STEPS:,} steps."
            )
        rows.append(numbers_of(run, labels))
    return rows


def _print(results: Results) -> None:
    columns = list(results["gd"][0][0])
    print(f"| optimiser | {' | '.join(columns)} |\n|{'---|' * (len(columns) + 1)}")
    for name, seeds in results.items():
        cells = []
        for column in columns:
            values = [row[column] for row in chain.from_iterable(seeds)]
            decimals = DECIMALS.get(column, 3)
            cells.append(f"{min(values):.{decimals}f} to {max(values):.{decimals}f}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    print()
    for column in columns:
        above = []
        for first, second in permutations(results, 2):
            gap = _least_gap(results[first], results[second], column)
            if gap > 0:
                above.append(f"{first} > {second} (by {gap:.3g} at least)")
        print(
            f"{column}, in every seed and at both rates: {'; '.join(above) or 'no difference'}",
            flush=True,
        )


def _least_gap(
    first: list[list[dict[str, float]]], second: list[list[dict[str, float]]], column: str
) -> float:
    """Return the least difference of one optimiser to another, over seeds and all rates."""
    gaps = [_least(a, column) + _least(b, column, -1) for a, b in zip(first, second, strict=True)]
    return min(gaps)


def _least(rates: list[dict[str, float]], column: str, sign: int = 1) -> float:
    """The least of a seed's numbers over its rates; with the sign -1 the least of their
    negatives.
    """
    return min(sign * rate[column] for rate in rates)


if __name__ == "__main__":
    main()
