"""Intervals of numbers that no derivative is known of: what a part of the text adds is seen by leaving it out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from headscan.geometry.deviation import Deviation
from headscan.geometry.explained import Bounds, Cells, number
from headscan.run.rows import Cell

__all__ = ["left_out", "of_items", "student", "wilson", "with_intervals"]

GROUPS = 64


def left_out(
    estimate: float | None,
    values: Sequence[float | None],
    sizes: Sequence[float] | npt.NDArray[np.float64],
    *,
    running: bool = True,
    level: float = 0.95,
    bounds: Bounds = (None, None),
) -> list[float] | None:
    """The interval of an estimate from its values with each cluster left out and the clusters' sizes; those of size zero are
    passed over.

    With h = n/n_c, the pseudo-value hθ − (h − 1)θ₋ of a cluster is its mean influence; the rest is `Deviation`: of a text
    that runs on where clusters are its consecutive blocks (`running`), else of independent ones. None where the estimate or
    a value is not defined, or fewer than three clusters hold anything.

    >>> x = np.array([1.0, 2.0, 3.0, 6.0])
    >>> low, high = left_out(3.0, (x.sum() - x) / 3, [1, 1, 1, 1], running=False)
    >>> bool(np.isclose(high - 3, 3.182446 * x.std(ddof=1) / 2))       # of a mean: Student's own
    True
    >>> left_out(3.0, [1.0, 2.0], [1, 1]) is None
    True
    """
    sizes = np.asarray(sizes, dtype=float)
    kept = [(value, size) for value, size in zip(values, sizes, strict=True) if size > 0]
    if estimate is None or len(kept) < 3 or any(value is None for value, _ in kept):
        return None
    counts = np.array([size for _, size in kept])
    h = counts.sum() / counts
    influences = counts * (h * estimate - (h - 1) * np.array([value for value, _ in kept], dtype=float))
    make = Deviation.of_text if running else Deviation.of_items
    found = make(influences, counts)
    return None if found is None else list(found.interval(estimate, level=level, bounds=bounds))


def with_intervals(
    row: Mapping[str, Cell],
    others: Sequence[Mapping[str, Cell]],
    sizes: Sequence[float] | npt.NDArray[np.float64],
    bounds: Mapping[str, Bounds],
    *,
    running: bool = True,
    suffix: str = "",
) -> Cells:
    """The numbers of a row that `bounds` names, each with its NAME_interval from rows with each cluster left out; see `left_out`.

    Where there are no `others` the intervals are None. `suffix` is put behind every name.

    >>> list(with_intervals({"a": 1.0}, [], [], {"a": (0.0, 1.0)}, suffix="_b").items())
    [('a_b', 1.0), ('a_b_interval', None)]
    """
    found: Cells = {}
    for name, ends in bounds.items():
        rest = [number(other[name]) for other in others]
        interval = left_out(number(row[name]), rest, sizes, running=running, bounds=ends) if others else None
        found |= {name + suffix: row[name], f"{name}{suffix}_interval": interval}
    return found


def of_items(
    function: Callable[[npt.NDArray[np.int64]], float | None], items: int, *, groups: Sequence[object] | None = None,
    bounds: Bounds = (None, None),
) -> list[float] | None:  # fmt: skip
    """The interval of a number of independent items: `function` gives it from the numbers of those that are taken.

    Items of one group (of `groups`, one name an item) err together and are one cluster; without groups, or with more than 64,
    clusters are 64 sets drawn at random, the same whenever asked. Where nothing varies (a share of 1) there is no spread to
    make an interval of, and the bounds say how many items could have been otherwise: 1 − .025^(1/n) of the range. Cost: 65
    calls.

    >>> hits = np.array([1.0] * 70 + [0.0] * 30)
    >>> [round(x, 2) for x in of_items(lambda taken: float(hits[taken].mean()), 100, bounds=(0, 1))]
    [0.6, 0.8]
    >>> [round(x, 3) for x in of_items(lambda taken: 1.0, 100, bounds=(0, 1))]
    [0.964, 1.0]
    """
    every = np.arange(items)
    own = np.unique(np.array(groups, dtype=str), return_inverse=True)[1] if groups is not None else every
    # Dealt out at random, always alike: every 64th of sorted items would be of one kind with the others.
    dealt = np.random.default_rng(0).permutation(int(own.max()) + 1) if items else own
    own = np.unique(dealt[own] % GROUPS, return_inverse=True)[1]
    sizes = np.bincount(own).astype(float)
    estimate = function(every)
    if len(sizes) < 3 or estimate is None:
        return None
    found = left_out(
        estimate, [function(every[own != k]) for k in range(len(sizes))], sizes, running=False, bounds=bounds
    )
    low, high = bounds
    if found is not None and found[0] == found[1] and low is not None and high is not None:
        reach = (1 - 0.025 ** (1 / items)) * (high - low)
        return [float(max(low, found[0] - reach)), float(min(high, found[1] + reach))]
    return found


def student(values: Sequence[float] | npt.NDArray[np.float64], *, level: float = 0.95) -> tuple[float, float]:
    """The interval of the mean of independent numbers, two at least, by Student's t.

    >>> [round(end, 2) for end in student([1.0, 2.0, 3.0])]
    [-0.48, 4.48]
    """
    found = np.asarray(values, dtype=np.float64)
    mean = float(found.mean())
    reach = float(stdtrit(len(found) - 1, 0.5 + level / 2)) * float(found.std(ddof=1)) / len(found) ** 0.5
    return mean - reach, mean + reach


def wilson(hits: int, n: int) -> list[float]:
    """The 95 % score interval of a share (Wilson 1927); it is never empty, even where there are no hits.

    >>> [round(end, 4) for end in wilson(0, 1000)]
    [0.0, 0.0038]
    """
    z, p = 1.96, hits / n
    centre, reach = p + z * z / (2 * n), z * (p * (1 - p) / n + z * z / (4 * n * n)) ** 0.5
    return [max(0.0, (centre - reach) / (1 + z * z / n)), min(1.0, (centre + reach) / (1 + z * z / n))]
