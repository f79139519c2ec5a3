"""Numbers of evaluation tasks with their intervals over items."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from headscan.geometry.interval import of_items

__all__ = ["Scores", "mean_of", "scored"]

Scores = dict[str, float | int | list[float] | None]
"""Numbers by name; NAME_interval [low, high] beside those that other items would change, 95 %."""


def scored(
    name: str, function: Callable[[npt.NDArray[np.int64]], float | None], items: int, *,
    groups: Sequence[object] | None = None, bounds: tuple[float | None, float | None] = (None, None),
) -> Scores:  # fmt: skip
    """A number of items, given by the numbers of those that are taken, and its interval; see `of_items`."""
    return {
        name: function(np.arange(items)),
        f"{name}_interval": of_items(function, items, groups=groups, bounds=bounds),
    }


def mean_of(
    name: str, values: npt.ArrayLike, *, groups: Sequence[object] | None = None,
    bounds: tuple[float | None, float | None] = (0.0, 1.0),
) -> Scores:  # fmt: skip
    """The mean of items' values (a share, of hits 0 and 1), and its interval.

    >>> mean_of("accuracy", [1, 1, 0, 1, 1, 0, 1, 1])["accuracy"]
    0.75
    """
    each = np.asarray(values, dtype=float)
    return scored(name, lambda taken: float(each[taken].mean()), len(each), groups=groups, bounds=bounds)
