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
"""Numbers of one site or row by name, NAME_interval beside NAME, `notes` where there are any."""

Z = 1.96
"""Standard errors on either side of a normal 95 % interval."""

PIECES = 8
"""Pieces that a running text is cut into."""

MEMORY = 0.75
"""H: the variance of a sum over m windows of a running text grows as m^(2H), its long memory.

Measured on the running texts of benchmarks/intervals_cover.py 0.65 to 0.77; chosen for coverage on
wikitext-2 (docs/intervals.md).
"""

CLEARLY = 0.95
"""Quantile of F beyond which documents in sequence count as a running text."""

LEAST = 3.0
"""Effective number of documents; with fewer, windows are the clusters."""

GROUPS = 64
"""Clusters of `clustered`."""

FAR = 3.0
"""Reach on a logarithmic scale beyond which an interval is not transformed: it says too little."""


def number(cell: Cell) -> float | None:
    """Return the number in a cell, None where it holds none."""
    return cell if isinstance(cell, int | float) else None


def bounded(low: float, high: float, bounds: Bounds) -> tuple[float, float]:
    """Return an interval cut to the range of its number."""
    least, most = bounds
    least = -np.inf if least is None else least
    most = np.inf if most is None else most
    ends = np.clip((low, high), least, most)
    return float(ends[0]), float(ends[1])


def difference_ends(a: Bounds, b: Bounds) -> Bounds:
    """Return the range of the difference a − b of two numbers of these ranges.

    >>> difference_ends((0, 1), (0, 1)), difference_ends((0, 1), (0, None))
    ((-1, 1), (None, 1))
    """
    a_least, a_most = a
    b_least, b_most = b
    least = None if a_least is None or b_most is None else a_least - b_most
    most = None if a_most is None or b_least is None else a_most - b_least
    return least, most


def normal(estimate: float, error: float, bounds: Bounds = (None, None)) -> tuple[float, float]:
    """Return estimate ± 1.96 standard errors.

    >>> normal(0.5, 0.1, (0, 0.6))
    (0.304, 0.6)
    """
    return bounded(estimate - Z * error, estimate + Z * error, bounds)


def normal_reach(values: Numbers) -> float:
    """Return half the width of the normal interval of the mean of (two or more) values."""
    reach: float = Z * float(np.std(values, ddof=1)) / len(values) ** 0.5
    return reach


def student_quantile(freedom: float, level: float = 0.95) -> float:
    """Return half the width of Student's interval in standard errors."""
    return float(stdtrit(freedom, 0.5 + level / 2))


def student(values: Numbers, *, level: float = 0.95) -> tuple[float, float]:
    """Return Student's interval of the mean of independent values, at least two.

    >>> [round(end, 2) for end in student([1.0, 2.0, 3.0])]
    [-0.48, 4.48]
    """
    sample = np.asarray(values, dtype=np.float64)
    mean = float(sample.mean())
    quantile = student_quantile(len(sample) - 1, level)
    reach = quantile * float(sample.std(ddof=1)) / len(sample) ** 0.5
    return mean - reach, mean + reach


def score_interval(share: float, n: float, z: float = Z) -> tuple[float, float]:
    """Return Wilson's score interval (1927) of a share of `n` items.

    `n` is an effective number where items depend on each other.
    """
    centre = share + z * z / (2 * n)
    reach = z * (share * (1 - share) / n + z * z / (4 * n * n)) ** 0.5
    low = (centre - reach) / (1 + z * z / n)
    high = (centre + reach) / (1 + z * z / n)
    return max(0.0, low), min(1.0, high)


def wilson(hits: int, n: int) -> list[float]:
    """Return the score interval of the share hits/n; it has a width even where there are no hits.

    >>> [round(end, 4) for end in wilson(0, 1000)]
    [0.0, 0.0038]
    """
    return list(score_interval(hits / n, n))


def rank_interval(area: float, positives: int, negatives: int) -> tuple[float, float]:
    """Return the 95 % interval of an area under the ROC curve; it has a width at 0 and 1, too.

    It is the score interval with Hanley and McNeil's variance (Newcombe, Statistics in Medicine 25
    (2006) 559, method 5): the true areas from which `area` differs by at most 1.96 errors.

    >>> [round(end, 3) for end in rank_interval(1.0, 20, 20)]
    [0.899, 1.0]
    >>> [round(end, 2) for end in rank_interval(0.5, 50, 50)]
    [0.39, 0.61]
    """
    size = (positives + negatives) / 2 - 1

    def is_outside(truth: float) -> bool:
        pairs = 1 + size * (1 - truth) / (2 - truth) + size * truth / (1 + truth)
        spread = truth * (1 - truth) * pairs
        error = (max(spread, 0.0) / (positives * negatives)) ** 0.5
        return bool(abs(area - truth) > Z * error)

    def end_towards(limit: float) -> float:
        inside = area if is_outside(limit) else limit
        outside = limit
        for _ in range(50):
            middle = (inside + outside) / 2
            if is_outside(middle):
                outside = middle
            else:
                inside = middle
        return inside

    return end_towards(0.0), end_towards(1.0)


def enough_documents(counts: Floats) -> bool:
    """Return whether documents of so many tokens [C] are effectively at least three: (Σn)²/Σn²."""
    if not len(counts):
        return False
    return float(counts.sum()) ** 2 >= LEAST * float((counts**2).sum())


def deviations(influences: Floats, counts: Floats) -> Floats:
    """Return what each cluster adds to the error of the average Σψ/Σn [C], times Σn."""
    average = influences.sum() / counts.sum()
    differences: Floats = influences - counts * average
    return differences


@dataclass(frozen=True)
class StandardError:
    """The standard error of a number, Student's degrees of freedom, and the effective number of
    independent clusters.

    Each constructor takes the sums of the influence ψ over clusters [C] and the clusters' numbers
    of tokens n [C], N in all. With the average ψ̄ = Σψ/N, r = Σψ − n·ψ̄ is what a cluster adds to
    the error. It returns None where fewer than three clusters have tokens.
    """

    error: float
    freedom: float
    effective: float

    @classmethod
    def of_text(cls, influences: Floats, counts: Floats) -> "StandardError | None":
        """Return the error of consecutive windows of one running text.

        Eight pieces of equal length b are summed, because neighbours depend on each other. The
        pieces depend on each other, too: with the long memory of text, Var(sum of b pieces) =
        b^2H·Var(a piece), H = ¾, and their spread about their mean falls short: E Σ(sᵢ − s̄)² = (b
        − b^(2H − 1))·Var(a piece). For independent windows intervals are twice too wide.
        """
        occupied = counts > 0
        clusters = int(occupied.sum())
        total = float(counts.sum())
        if clusters < 3:
            return None
        n = counts[occupied]
        r = influences[occupied] - n * (influences.sum() / total)

        b = min(PIECES, clusters)
        sums = _piece_sums(r, n, b)
        piece_variance = float(sums @ sums) / (b - b ** (2 * MEMORY - 1))
        variance = piece_variance * b ** (2 * MEMORY)
        if not np.isfinite(variance):
            return None
        effective: float = clusters
        if variance:
            effective = min(clusters, clusters * float(r @ r) / variance)
        return cls(variance**0.5 / total, b - 1.0, effective)

    @classmethod
    def of_items(cls, influences: Floats, counts: Floats) -> "StandardError | None":
        """Return the error of independent clusters.

        The average is a ratio of sums: Var = Σ r²/(1 − n/N)/N². Student's degrees of freedom are
        those of clusters whose variances go as n^1.5, between n of independent tokens and n² of
        wholly dependent ones.
        """
        occupied = counts > 0
        n = counts[occupied]
        total = float(counts.sum())
        if len(n) < 3:
            return None
        r = influences[occupied] - n * (influences.sum() / total)
        variance = float((r**2 / (1 - n / total)).sum())
        if not np.isfinite(variance):
            return None
        weights = n**1.5
        effective = float(weights.sum() ** 2 / (weights**2).sum())
        return cls(variance**0.5 / total, max(1.0, effective - 1), effective)

    @classmethod
    def of_documents(cls, influences: Floats, counts: Floats) -> "StandardError | None":
        """Return the error of documents: `of_items`, unless their order matters (chapters, dates).

        Where there are 16, and eight pieces of consecutive ones spread beyond the 0.95 quantile of
        F, they are a running text.
        """
        independent = cls.of_items(influences, counts)
        occupied = counts > 0
        if independent is None or int(occupied.sum()) < 2 * PIECES:
            return independent
        n = counts[occupied]
        total = float(counts.sum())
        r = influences[occupied] - n * (influences.sum() / total)
        sums = _piece_sums(r, n, PIECES)
        spread = float(sums @ sums) * PIECES / (PIECES - 1)
        quantile = fdtri(PIECES - 1, independent.freedom, CLEARLY)
        if spread > (independent.error * total) ** 2 * quantile:
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
        """Return estimate ± t·error on the scale of a range, cut to `bounds`.

        The scale is the logit between two ends, the logarithm above 0 where there is no upper end,
        the number itself otherwise, and where the interval would reach over more than a factor of
        e³.

        >>> error = StandardError(error=0.1, freedom=1e9, effective=1e9)
        >>> [round(end, 3) for end in error.interval(0.5)]
        [0.304, 0.696]
        >>> [round(end, 3) for end in error.interval(0.9, scale=(0, 1))]
        [0.505, 0.988]
        """
        reach = student_quantile(self.freedom, level) * self.error
        least, most = scale
        low = estimate - reach
        high = estimate + reach
        if least is not None and most is not None and least < estimate < most:
            width = most - least
            logit = np.log((estimate - least) / (most - estimate))
            logit_reach = reach * width / ((estimate - least) * (most - estimate))
            if logit_reach < FAR:
                low = float(least + width * expit(logit - logit_reach))
                high = float(least + width * expit(logit + logit_reach))
        elif most is None and least is not None and least >= 0 and reach < FAR * estimate:
            low = estimate * float(np.exp(-reach / estimate))
            high = estimate * float(np.exp(reach / estimate))
        return bounded(min(estimate, low), max(estimate, high), bounds)


def _piece_sums(values: Floats, counts: Floats, pieces: int) -> Floats:
    """Return the sums of values over pieces of consecutive clusters of about equal length.

    `counts` are the lengths of the clusters; each belongs to the piece that its middle is in.
    """
    ends = np.cumsum(counts)
    middles = ends - counts / 2
    piece = np.minimum((middles * pieces / ends[-1]).astype(int), pieces - 1)
    return np.bincount(piece, weights=values, minlength=pieces).astype(np.float64)


def jackknife(
    estimate: float | None,
    values: Sequence[float | None],
    sizes: Numbers,
    *,
    running: bool = True,
    level: float = 0.95,
    bounds: Bounds = (None, None),
) -> list[float] | None:
    """Return the interval of an estimate from its values with each cluster left out.

    `sizes` are those of the clusters; a cluster of size 0 is passed over. With h = n/n_c, a
    cluster's mean influence is the pseudo-value hθ − (h − 1)θ₋. Clusters are consecutive blocks of
    a text (`running`) or independent. None where the estimate or a value is None, or fewer than
    three clusters have a size.

    >>> x = np.array([1.0, 2.0, 3.0, 6.0])
    >>> low, high = jackknife(3.0, (x.sum() - x) / 3, [1, 1, 1, 1], running=False)
    >>> of_the_mean = student_quantile(3) * x.std(ddof=1) / 2
    >>> bool(np.isclose(high - 3, of_the_mean))
    True
    """
    sizes = np.asarray(sizes, dtype=float)
    used = [(value, size) for value, size in zip(values, sizes, strict=True) if size > 0]
    if estimate is None or len(used) < 3 or any(value is None for value, _ in used):
        return None
    counts = np.array([size for _, size in used])
    without_cluster = np.array([value for value, _ in used], dtype=float)
    h = counts.sum() / counts
    influences = counts * (h * estimate - (h - 1) * without_cluster)
    if running:
        error = StandardError.of_text(influences, counts)
    else:
        error = StandardError.of_items(influences, counts)
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
    """Return the numbers of a row that `bounds` names, each with its NAME_interval by `jackknife`.

    `left_out` are rows with one cluster left out each; without such rows the intervals are None.
    `suffix` is appended to every name.
    """
    cells: Cells = {}
    for name, ends in bounds.items():
        interval = None
        if left_out:
            values = [number(part[name]) for part in left_out]
            interval = jackknife(number(row[name]), values, sizes, running=running, bounds=ends)
        cells[name + suffix] = row[name]
        cells[f"{name}{suffix}_interval"] = interval
    return cells


def clustered(
    function: Callable[[npt.NDArray[np.int64]], float | None],
    items: int,
    *,
    groups: Sequence[object] | None = None,
    bounds: Bounds = (None, None),
) -> list[float] | None:
    """Return the interval of a number of independent items, which `function` computes for the
    indices of some of them.

    Items of one group (`groups`: one name an item) err together and form one cluster; without
    groups, or with more than 64, clusters are 64 sets drawn at random with a fixed seed. Where
    nothing varies (a share of 1), the interval reaches 1 − 0.025^(1/n) of the range: so many items
    could have been otherwise. Cost: 65 calls.

    >>> [round(x, 3) for x in clustered(lambda indices: 1.0, 100, bounds=(0, 1))]
    [0.964, 1.0]
    """
    indices = np.arange(items)
    cluster = _clusters_of(indices, groups)
    sizes = np.bincount(cluster).astype(float)
    estimate = function(indices)
    if len(sizes) < 3 or estimate is None:
        return None
    values = [function(indices[cluster != k]) for k in range(len(sizes))]
    interval = jackknife(estimate, values, sizes, running=False, bounds=bounds)
    low, high = bounds
    if interval is None or interval[0] != interval[1] or low is None or high is None:
        return interval
    reach = (1 - 0.025 ** (1 / items)) * (high - low)
    return [float(max(low, interval[0] - reach)), float(min(high, interval[1] + reach))]


def _clusters_of(
    indices: npt.NDArray[np.int64], groups: Sequence[object] | None
) -> npt.NDArray[np.int64]:
    """Return the cluster of each item, by its group, at most 64 in all."""
    group = indices
    if groups is not None:
        group = np.unique(np.array(groups, dtype=str), return_inverse=True)[1]
    # At random, because every 64th of sorted groups would resemble the others.
    shuffled = np.random.default_rng(0).permutation(int(group.max()) + 1) if len(group) else group
    return np.unique(shuffled[group] % GROUPS, return_inverse=True)[1]
