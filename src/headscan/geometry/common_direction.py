"""What the common direction says: the logits of the mean state, against how frequent each token is."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["correlations", "permuted", "weighted_correlation"]

Floats = npt.NDArray[np.float64]


def weighted_correlation(x: Floats, y: Floats, weights: Floats) -> Floats:
    """Pearson's r of each row of x [k, n] with y [n], or with its own row of y [k, n], under weights of the same shape as y;
    NaN where either is constant. In [−1, 1].

    >>> float(weighted_correlation(np.array([[1.0, 2.0, 9.0]]), np.array([2.0, 4.0, 0.0]), np.array([1.0, 1.0, 0.0]))[0])
    1.0
    """
    w = weights / weights.sum(-1, keepdims=True)
    x = x - (w * x).sum(-1, keepdims=True)
    y = y - (w * y).sum(-1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        found: Floats = (w * x * y).sum(-1) / np.sqrt((w * x * x).sum(-1) * (w * y * y).sum(-1))
    return found


def correlations(logits: Floats, counts: npt.NDArray[np.int64]) -> tuple[Floats, Floats]:
    """r of logits [k, n] with the log frequency of the tokens [n] or [k, n], each token weighted by its frequency, and all
    tokens alike; tokens that never occur are left out.

    >>> weighted, alike = correlations(np.log(np.array([[8.0, 4.0, 1.0]])), np.array([8, 4, 1]))
    >>> float(weighted[0]), float(alike[0])
    (1.0, 1.0)
    """
    seen = counts > 0
    frequency = np.log(np.where(seen, counts, 1).astype(np.float64))
    return (
        weighted_correlation(logits, frequency, counts.astype(np.float64)),
        weighted_correlation(logits, frequency, seen.astype(np.float64)),
    )


def permuted(logits: Floats, counts: npt.NDArray[np.int64], generator: np.random.Generator, draws: int) -> Floats:
    """The null: the weighted r of the same logits [n], dealt out to other tokens at random [draws].

    >>> null = permuted(np.arange(50.0), np.arange(1, 51), np.random.default_rng(0), 200)
    >>> bool(abs(null.mean()) < 0.1 < null.std() < 0.3)
    True
    """
    return correlations(generator.permuted(np.tile(logits, (draws, 1)), axis=1), counts)[0]
