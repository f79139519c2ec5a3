"""Intervals of numbers that no derivative is known of: what a part of the text adds is seen by leaving it out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import fdtri, stdtrit

from headscan.measures.measure import Bounds, Cells, number
from headscan.run.rows import Cell

# ---- How far a number may lie from that of endless text like this one: its standard error, from clusters' influences.

Floats = npt.NDArray[np.float64]

# A text that runs on has long memory: the variance of a sum over m windows grows as m^(2·MEMORY). Measured on the running
# texts of benchmarks/intervals_cover.py .65 to .77; chosen for coverage on wikitext-2 (docs/intervals.md).
PIECES, MEMORY = 8, 0.75
CLEARLY = 0.95  # see `Deviation.of_documents`
LEAST = 3.0  # documents, in effect; with fewer, windows are the clusters


def several(counts: Floats) -> bool:
    """Whether documents of so many tokens [C] are three at least, in effect: (Σn)²/Σn²."""
    return len(counts) > 0 and float(counts.sum()) ** 2 >= LEAST * float((counts**2).sum())


@dataclass(frozen=True)
class Deviation:
    """The standard error of a number, Student's degrees of freedom, and how many independent clusters it is worth."""

    error: float
    freedom: float
    effective: float

    @classmethod
    def of_text(cls, influences: Floats, counts: Floats) -> Deviation | None:
        """From the sums of ψ over consecutive windows of one text [C] and their numbers of tokens [C]; None below three.

        Eight pieces of equal length b are summed, for neighbours depend on each other. Pieces do, too: with the long memory
        of text, Var(sum of b pieces) = b^2H·Var(a piece), H = ¾, and the pieces' spread about their mean is short of that of
        the mean itself: E Σ(sᵢ − s̄)² = (b − b^(2H − 1))·Var(a piece). A drift over more than the whole text cannot be seen.
        Of windows that are independent in truth this makes intervals twice as wide as need be.

        >>> x = np.random.default_rng(0).standard_normal(800)
        >>> found = Deviation.of_text(x, np.ones(800))
        >>> bool(1 < found.error / (x.std() / 800**0.5) < 3)
        True
        """
        kept = counts > 0
        clusters, total = int(kept.sum()), float(counts.sum())
        if clusters < 3:
            return None
        rest = influences[kept] - counts[kept] * (influences.sum() / total)
        pieces = min(PIECES, clusters)
        sums = _pieces(rest, counts[kept], pieces)
        variance = float(sums @ sums) / (pieces - pieces ** (2 * MEMORY - 1)) * pieces ** (2 * MEMORY)
        if not np.isfinite(variance):
            return None
        own = float(rest @ rest)
        return cls(
            variance**0.5 / total, pieces - 1.0, min(clusters, clusters * own / variance) if variance else clusters
        )

    @classmethod
    def of_items(cls, influences: Floats, counts: Floats) -> Deviation | None:
        """From the sums of ψ over clusters [C] and their numbers of tokens [C], taken as independent; None below three.

        The average is a ratio of sums: with r = Σψ − n·ψ̄, Var = Σ r²/(1 − n/N)/N². Student's degrees of freedom are those of
        clusters whose variances go as n^1.5, between n of independent tokens and n² of wholly dependent ones.

        >>> x = np.random.default_rng(0).standard_normal(100)
        >>> found = Deviation.of_items(x, np.ones(100))
        >>> round(found.error, 3), round(float(x.std(ddof=1) / 10), 3)
        (0.097, 0.097)
        """
        kept = counts > 0
        n, total = counts[kept], float(counts.sum())
        if len(n) < 3:
            return None
        rest = influences[kept] - n * (influences.sum() / total)
        variance = float((rest**2 / (1 - n / total)).sum())
        if not np.isfinite(variance):
            return None
        weights = n**1.5
        effective = float(weights.sum() ** 2 / (weights**2).sum())
        return cls(variance**0.5 / total, max(1.0, effective - 1), effective)

    @classmethod
    def of_documents(cls, influences: Floats, counts: Floats) -> Deviation | None:
        """From the sums of ψ over documents [C] and their numbers of tokens [C], as `of_items`; None below three.

        Documents may come in an order that matters (chapters, dates). Where there are 16, and eight pieces of consecutive
        ones spread clearly more than that (beyond the .95 quantile of F), they are taken as a text that runs on.
        """
        found = cls.of_items(influences, counts)
        kept = counts > 0
        if found is None or int(kept.sum()) < 2 * PIECES:
            return found
        n, total = counts[kept], float(counts.sum())
        sums = _pieces(influences[kept] - n * (influences.sum() / total), n, PIECES)
        spread = float(sums @ sums) * PIECES / (PIECES - 1)
        if spread > (found.error * total) ** 2 * fdtri(PIECES - 1, found.freedom, CLEARLY):
            return cls.of_text(influences, counts)
        return found

    def interval(
        self, estimate: float, *, level: float = 0.95, biases: Sequence[float] = (),
        bounds: tuple[float | None, float | None],
    ) -> tuple[float, float]:  # fmt: skip
        """estimate − Σ biases ± t·error, as far as the estimate at least, cut to `bounds`.

        Each bias (a difference has those of two numbers) is known from the same few clusters: to 1/√freedom of itself, which
        is added to the error.

        >>> found = Deviation(error=1.0, freedom=1e9, effective=1e9)
        >>> [round(end, 2) for end in found.interval(10.0, biases=[1.0], bounds=(None, 10.5))]
        [7.04, 10.5]
        >>> [round(end, 2) for end in found.interval(10.0, biases=[-3.0], bounds=(None, None))]
        [10.0, 14.96]
        """
        error = float(np.sqrt(self.error**2 + sum(bias**2 for bias in biases) / self.freedom))
        reach, centre = float(stdtrit(self.freedom, 0.5 + level / 2)) * error, estimate - sum(biases)
        return bounded(min(estimate, centre - reach), max(estimate, centre + reach), bounds)


def _pieces(rest: Floats, counts: Floats, pieces: int) -> Floats:
    """Sums of consecutive clusters, `pieces` of them, of about as many tokens each."""
    ends = np.cumsum(counts)
    middle = ends - counts / 2
    piece = np.minimum((middle * pieces / ends[-1]).astype(int), pieces - 1)
    return np.bincount(piece, weights=rest, minlength=pieces).astype(np.float64)


def bounded(least: float, most: float, bounds: tuple[float | None, float | None]) -> tuple[float, float]:
    """An interval cut to what can be."""
    low = -np.inf if bounds[0] is None else bounds[0]
    high = np.inf if bounds[1] is None else bounds[1]
    return max(least, low), min(most, high)


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
