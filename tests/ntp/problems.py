"""Random instances shared by the tests."""

import numpy as np

from headscan.ntp import SoftLabels


def random_supports(
    seed: int, contexts: int, vocabulary: int, largest: int | None = None
) -> np.ndarray:
    """Dense bool supports [m, V], Zipf-like, with repeats, none full."""
    rng = np.random.default_rng(seed)
    weight = 1 / np.arange(1, vocabulary + 1)
    weight /= weight.sum()
    S = np.zeros((contexts, vocabulary), dtype=bool)
    for row in S:
        size = rng.integers(1, (largest or max(2, vocabulary // 2)) + 1)
        row[rng.choice(vocabulary, size, replace=False, p=weight)] = True
    S[-1] = S[0]
    return S


def random_counts(seed: int, contexts: int, vocabulary: int) -> np.ndarray:
    """Integer counts [m, V] on such supports."""
    rng = np.random.default_rng(seed + 1000)
    return random_supports(seed, contexts, vocabulary) * rng.integers(
        1, 6, size=(contexts, vocabulary)
    )


def labels(seed: int = 0, contexts: int = 12, vocabulary: int = 7) -> SoftLabels:
    return SoftLabels.of(random_counts(seed, contexts, vocabulary))
