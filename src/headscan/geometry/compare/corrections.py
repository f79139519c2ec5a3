"""Many cells are tested at once: p values that keep the share of false discoveries."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["benjamini_hochberg"]


def benjamini_hochberg(p: Sequence[float]) -> list[float]:
    """Adjusted p values (Benjamini and Hochberg 1995): calling those below α discoveries, at most α of them are false on
    average, where the tests are independent or positively dependent, as those of neighbouring layers are.

    >>> benjamini_hochberg([0.01, 0.02, 0.5])
    [0.03, 0.03, 0.5]
    """
    values = np.asarray(p, dtype=np.float64)
    order = np.argsort(values)[::-1]
    ranks = np.arange(len(values), 0, -1)
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(1.0, np.minimum.accumulate(values[order] * len(values) / ranks))
    return [float(value) for value in adjusted]
