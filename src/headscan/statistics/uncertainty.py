"""Every interval of the package: normal, Student, Wilson, jackknife, clusters, and influences of
one text.

All are 95 % intervals unless `level` says otherwise, as (low, high) or [low, high], and None where
there is none.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.special import expit, fdtri, stdtrit

from headscan.run.rows import Cell

Floats: TypeAlias = npt.NDArray[np.float64]
Numbers: TypeAlias = Sequence[float] | Floats
Bounds: TypeAlias = tuple[float | None, float | None]
"""Least and greatest value a number can have; None where there is no such end."""
Cells: TypeAlias = dict[str, Cell]
"""Numbers of one site or thing by name, NAME_interval beside NAME, `notes` where there are any."""

Z = 1.96
"""Standard errors on either side of a normal 95 % interval."""


def number(cell: Cell) -> float | None:
    """The number in a cell, None where it holds none."""
    return cell if isinstance(cell, int | float) else None


def bounded(low: float, high: float, bounds: Bounds) -> tuple[float, float]:
    """An interval cut to the range of its number."""
    least, most = bounds
    ends = np.clip(
        (low, high), -np.inf if least is None else least, np.inf if most is None else most
    )
    return float(ends[0]), float(ends[1])


def difference_ends(one: Bounds, other: Bounds) -> Bounds:
    """The range of the difference of two numbers of these ranges.

    >>> difference_ends((0, 1), (0, 1)), difference_ends((0, 1), (0, None))
    ((-1, 1), (None, 1))
    """
    (a, b), (c, d) = one, other
    return None if a is None or d is None else a - d, None if b is None or c is None else b - c


def normal(estimate: float, error: float, bounds: Bounds = (None, None)) -> tuple[float, float]:
    """estimate ± 1.96 standard errors.

    >>> normal(0.5, 0.1, (0, 0.6))
    (0.304, 0.6)
    """
    return bounded(estimate - Z * error, estimate + Z * error, bounds)


def normal_reach(values: Numbers) -> float:
    """Half the width of the normal interval of the mean of independent values, two at least."""
    reach: float = Z * float(np.std(values, ddof=1)) / len(values) ** 0.5
    return reach


def student_quantile(freedom: float, level: float = 0.95) -> float:
    """Half the width of Student's interval in standard errors."""
    return float(stdtrit(freedom, 0.5 + level / 2))


def student(values: Numbers, *, level: float = 0.95) -> tuple[float, float]:
    """Student's interval of the mean of independent values, two at least.

    >>> [round(end, 2) for end in student([1.0, 2.0, 3.0])]
    [-0.48, 4.48]
    """
    sample = np.asarray(values, dtype=np.float64)
    mean = float(sample.mean())
    reach = (
        student_quantile(len(sample) - 1, level) * float(sample.std(ddof=1)) / len(sample) ** 0.5
    )
    return mean - reach, mean + reach


def score_interval(share: float, n: float, z: float = Z) -> tuple[float, float]:
    """Wilson's score interval (1927) of a share of `n` items, `n` an effective number where items
    depend on each other.
    """
    centre = share + z * z / (2 * n)
    reach = z * (share * (1 - share) / n + z * z / (4 * n * n)) ** 0.5
    return max(0.0, (centre - reach) / (1 + z * z / n)), min(
        1.0, (centre + reach) / (1 + z * z / n)
    )


def wilson(hits: int, n: int) -> list[float]:
    """The score interval of the share hits/n; it has a width even where there are no hits.

    >>> [round(end, 4) for end in wilson(0, 1000)]
    [0.0, 0.0038]
    """
    return list(score_interval(hits / n, n))


def rank_interval(area: float, positives: int, negatives: int) -> tuple[float, float]:
    """The 95 % interval of an area under the ROC curve, from so many of both kinds; it has a width
    at 0 and 1, too.

    The score interval with Hanley and McNeil's variance (Newcombe, Statistics in Medicine 25 (2006)
    559, method 5).

    >>> [round(end, 3) for end in rank_interval(1.0, 20, 20)], [round(end, 2) for end in rank_interval(0.5, 50, 50)]
    ([0.899, 1.0], [0.39, 0.61])
    """
    size = (positives + negatives) / 2 - 1

    def beyond(truth: float) -> bool:
        spread = (
            truth
            * (1 - truth)
            * (1 + size * (1 - truth) / (2 - truth) + size * truth / (1 + truth))
        )
        return bool(abs(area - truth) > Z * (max(spread, 0.0) / (positives * negatives)) ** 0.5)

    ends = []
    for far in (0.0, 1.0):
        inside = area if beyond(far) else far
        for _ in range(50):
            middle = (inside + far) / 2
            inside, far = (inside, middle) if beyond(middle) else (middle, far)
        ends.append(inside)
    return ends[0], ends[1]


# ---- Averages over clusters, from what each cluster adds to the error (its influence)

# A text that runs on has long memory: the variance of a sum over m windows grows as m^(2·MEMORY).
# Measured on the running texts of benchmarks/intervals_cover.py .65 to .77; chosen for coverage on
# wikitext-2 (docs/intervals.md).
PIECES = 8
MEMORY = 0.75
CLEARLY = 0.95  # quantile of F beyond which documents in sequence count as a running text
LEAST = 3.0  # effective number of documents; with fewer, windows are the clusters
GROUPS = 64  # clusters of `clustered`
# on a logarithmic scale: an interval that reaches further says too little to be drawn out there
FAR = 3.0


def enough_documents(counts: Floats) -> bool:
    """Whether documents of so many tokens [C] are effectively three at least: (Σn)²/Σn²."""
    return len(counts) > 0 and float(counts.sum()) ** 2 >= LEAST * float((counts**2).sum())


def deviations(influences: Floats, counts: Floats) -> Floats:
    """What each cluster adds to the error of the average Σψ/Σn [C], times Σn."""
    rest: Floats = influences - counts * (influences.sum() / counts.sum())
    return rest


@dataclass(frozen=True)
class StandardError:
    """The standard error of a number, Student's degrees of freedom, and the effective number of
    independent clusters.

    Each constructor takes the sums of the influence ψ over clusters [C] and the clusters' numbers
    of tokens [C]. It returns None where fewer than three clusters have tokens.
    """

    error: float
    freedom: float
    effective: float

    @classmethod
    def of_text(cls, influences: Floats, counts: Floats) -> "StandardError | None":
        """For consecutive windows of one running text.

        Eight pieces of equal length b are summed, because neighbours depend on each other. The
        pieces depend on each other, too: with the long memory of text, Var(sum of b pieces) =
        b^2H·Var(a piece), H = ¾, and their spread about their mean falls short: E Σ(sᵢ − s̄)² = (b
        − b^(2H − 1))·Var(a piece). For independent windows intervals are twice too wide.
        """
        kept = counts > 0
        clusters = int(kept.sum())
        total = float(counts.sum())
        if clusters < 3:
            return None
        rest = influences[kept] - counts[kept] * (influences.sum() / total)
        pieces = min(PIECES, clusters)
        sums = _pieces(rest, counts[kept], pieces)
        variance = (
            float(sums @ sums) / (pieces - pieces ** (2 * MEMORY - 1)) * pieces ** (2 * MEMORY)
        )
        if not np.isfinite(variance):
            return None
        effective = (
            min(clusters, clusters * float(rest @ rest) / variance) if variance else clusters
        )
        return cls(variance**0.5 / total, pieces - 1.0, effective)

    @classmethod
    def of_items(cls, influences: Floats, counts: Floats) -> "StandardError | None":
        """For independent clusters.

        The average is a ratio of sums: with r = Σψ − n·ψ̄, Var = Σ r²/(1 − n/N)/N². Student's
        degrees of freedom are those of clusters whose variances go as n^1.5, between n of
        independent tokens and n² of wholly dependent ones.
        """
        kept = counts > 0
        n = counts[kept]
        total = float(counts.sum())
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
    def of_documents(cls, influences: Floats, counts: Floats) -> "StandardError | None":
        """For documents: as `of_items`, unless their order matters (chapters, dates). Where there
        are 16, and eight pieces of consecutive ones spread beyond the .95 quantile of F, they are a
        running text.
        """
        independent = cls.of_items(influences, counts)
        kept = counts > 0
        if independent is None or int(kept.sum()) < 2 * PIECES:
            return independent
        n = counts[kept]
        total = float(counts.sum())
        sums = _pieces(influences[kept] - n * (influences.sum() / total), n, PIECES)
        spread = float(sums @ sums) * PIECES / (PIECES - 1)
        if spread > (independent.error * total) ** 2 * fdtri(
            PIECES - 1, independent.freedom, CLEARLY
        ):
            return cls.of_text(influences, counts)
        return independent

    def interval(
        self,
        estimate: float,
        *,
        level: float = 0.95,
        bounds: Bounds = (None, None),
        scale: Bounds = (None, None),
    ) -> tuple[float, float]:
        """estimate ± t·error on the scale of a range, cut to `bounds`.

        The scale is the logit between two ends, the logarithm above 0 where there is no upper end,
        the number itself otherwise, and where the interval would reach over more than a factor of
        e³.

        >>> known = StandardError(error=0.1, freedom=1e9, effective=1e9)
        >>> [round(end, 3) for end in known.interval(0.5)], [round(end, 3) for end in known.interval(0.9, scale=(0, 1))]
        ([0.304, 0.696], [0.505, 0.988])
        """
        reach = student_quantile(self.freedom, level) * self.error
        low = estimate - reach
        high = estimate + reach
        least, most = scale
        if least is not None and most is not None and least < estimate < most:
            over = reach * (most - least) / ((estimate - least) * (most - estimate))
            middle = np.log((estimate - least) / (most - estimate))
            if over < FAR:
                low, high = (
                    float(least + (most - least) * expit(middle + side * over)) for side in (-1, 1)
                )
        elif (
            most is None and least is not None and least >= 0 < estimate and reach < FAR * estimate
        ):
            low, high = (estimate * float(np.exp(side * reach / estimate)) for side in (-1, 1))
        return bounded(min(estimate, low), max(estimate, high), bounds)


def _pieces(rest: Floats, counts: Floats, pieces: int) -> Floats:
    ends = np.cumsum(counts)
    middle = ends - counts / 2
    piece = np.minimum((middle * pieces / ends[-1]).astype(int), pieces - 1)
    return np.bincount(piece, weights=rest, minlength=pieces).astype(np.float64)


def jackknife(
    estimate: float | None,
    values: Sequence[float | None],
    sizes: Numbers,
    *,
    running: bool = True,
    level: float = 0.95,
    bounds: Bounds = (None, None),
) -> list[float] | None:
    """The interval of an estimate from its values with each cluster left out, and the clusters'
    sizes (0: passed over).

    With h = n/n_c, a cluster's mean influence is the pseudo-value hθ − (h − 1)θ₋. Clusters are
    consecutive blocks of a text (`running`) or independent. None where the estimate or a value is
    None, or fewer than three clusters have a size.

    >>> x = np.array([1.0, 2.0, 3.0, 6.0])
    >>> low, high = jackknife(3.0, (x.sum() - x) / 3, [1, 1, 1, 1], running=False)
    >>> bool(np.isclose(high - 3, student_quantile(3) * x.std(ddof=1) / 2))       # of a mean: Student's own
    True
    """
    sizes = np.asarray(sizes, dtype=float)
    kept = [(value, size) for value, size in zip(values, sizes, strict=True) if size > 0]
    if estimate is None or len(kept) < 3 or any(value is None for value, _ in kept):
        return None
    counts = np.array([size for _, size in kept])
    h = counts.sum() / counts
    influences = counts * (
        h * estimate - (h - 1) * np.array([value for value, _ in kept], dtype=float)
    )
    error = (StandardError.of_text if running else StandardError.of_items)(influences, counts)
    return None if error is None else list(error.interval(estimate, level=level, bounds=bounds))


def with_intervals(
    row: Mapping[str, Cell],
    left_out: Sequence[Mapping[str, Cell]],
    sizes: Numbers,
    bounds: Mapping[str, Bounds],
    *,
    running: bool = True,
    suffix: str = "",
) -> Cells:
    """The numbers of a row that `bounds` names, each with its NAME_interval by `jackknife` from
    rows with a cluster left out. Without such rows the intervals are None. `suffix` is appended to
    every name.
    """
    cells: Cells = {}
    for name, ends in bounds.items():
        rest = [number(other[name]) for other in left_out]
        interval = (
            jackknife(number(row[name]), rest, sizes, running=running, bounds=ends)
            if left_out
            else None
        )
        cells |= {name + suffix: row[name], f"{name}{suffix}_interval": interval}
    return cells


def clustered(
    function: Callable[[npt.NDArray[np.int64]], float | None],
    items: int,
    *,
    groups: Sequence[object] | None = None,
    bounds: Bounds = (None, None),
) -> list[float] | None:
    """The interval of a number of independent items: `function` returns it for the indices of some
    of them.

    Items of one group (`groups`: one name an item) err together and form one cluster; without
    groups, or with more than 64, clusters are 64 sets drawn at random with a fixed seed. Where
    nothing varies (a share of 1), the interval reaches 1 − .025^(1/n) of the range: so many items
    could have been otherwise. Cost: 65 calls.

    >>> [round(x, 3) for x in clustered(lambda taken: 1.0, 100, bounds=(0, 1))]
    [0.964, 1.0]
    """
    every = np.arange(items)
    own = (
        np.unique(np.array(groups, dtype=str), return_inverse=True)[1]
        if groups is not None
        else every
    )
    # Dealt out at random: every 64th of sorted items would resemble the others.
    dealt = np.random.default_rng(0).permutation(int(own.max()) + 1) if items else own
    own = np.unique(dealt[own] % GROUPS, return_inverse=True)[1]
    sizes = np.bincount(own).astype(float)
    estimate = function(every)
    if len(sizes) < 3 or estimate is None:
        return None
    values = [function(every[own != k]) for k in range(len(sizes))]
    interval = jackknife(estimate, values, sizes, running=False, bounds=bounds)
    low, high = bounds
    if interval is not None and interval[0] == interval[1] and low is not None and high is not None:
        reach = (1 - 0.025 ** (1 / items)) * (high - low)
        return [float(max(low, interval[0] - reach)), float(min(high, interval[1] + reach))]
    return interval
