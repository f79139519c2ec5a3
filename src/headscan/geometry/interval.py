"""Confidence intervals: how much would a number have moved, had the text been another?

Of a scan's measures: from the windows' influences (`Deviation`). Of the probes' numbers: from blocks left out (`Jackknife`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import fdtri, stdtrit

from headscan.statistics import Cloud, Sums

__all__ = ["Deviation", "Jackknife", "jackknifed", "left_out"]

PIECES, CLEARLY = 5, 0.7  # see `Deviation.of`


@dataclass(frozen=True)
class Deviation:
    """The standard error of a number, Student's degrees of freedom, and how many independent groups it is worth."""

    error: float
    freedom: float
    effective: float

    @classmethod
    def of(cls, influences: npt.NDArray[np.float64], counts: npt.NDArray[np.float64]) -> Deviation | None:
        """From the sums of ψ over consecutive groups of tokens [G] and the groups' sizes [G]; None for fewer than three.

        Neighbouring windows share documents, so the variance is a long-run one: Bartlett weights up to a lag L that the
        series' first autocorrelation chooses (Andrews 1991, AR(1)) and no less than ¾G^⅓, made good for the mean that is
        taken away; it is worth 1.5·G/(L + 1) degrees of freedom (Priestley 1981). A text that drifts slowly shows little
        in neighbours: pieces of 2, 4, 8, ... groups, at least five, are looked at in turn, and where their sums spread
        clearly more (beyond the .7 quantile of F), theirs is the variance. What drifts over the whole length cannot be seen.

        >>> x = np.random.default_rng(0).standard_normal(100)
        >>> found = Deviation.of(x, np.ones(100))
        >>> round(found.error, 2), round(float(x.std(ddof=1) / 10), 2)
        (0.11, 0.1)
        """
        kept = counts > 0
        groups, total = int(kept.sum()), float(counts.sum())
        if groups < 3:
            return None
        rest = influences[kept] - counts[kept] * (influences.sum() / total)
        own = float(rest @ rest)
        if not np.isfinite(own):
            return None
        if own == 0:
            return cls(0.0, groups - 1, float(groups))
        variance, freedom = _long_run(rest, own)
        size = 2
        while groups // size >= PIECES:
            starts = np.arange(0, groups, size)
            starts = starts if groups - starts[-1] >= size / 2 else starts[:-1]  # a short rest goes to the last piece
            sums = np.add.reduceat(rest, starts)
            found = float(sums @ sums) * len(sums) / (len(sums) - 1)
            if found > variance * fdtri(len(sums) - 1, freedom, CLEARLY):
                variance, freedom = found, len(sums) - 1.0
            size *= 2
        return cls(variance**0.5 / total, freedom, min(float(groups), groups * own / variance))

    @classmethod
    def of_documents(cls, influences: npt.NDArray[np.float64], counts: npt.NDArray[np.float64]) -> Deviation | None:
        """From the sums of ψ over documents [C] and their sizes [C], taken as independent; None for fewer than three.

        The average is a ratio of sums: with r = Σψ − n·ψ̄, Var = Σ r²/(1 − n/N)/N². Student's degrees of freedom: Σ(n^1.5)
        squared over Σ(n^1.5)² less one, between what independent tokens and wholly dependent ones ask for.
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

    def interval(
        self, estimate: float, *, level: float = 0.95, bias: float = 0.0, bounds: tuple[float | None, float | None]
    ) -> tuple[float, float]:
        """estimate ± t·error, further out by `bias` on the side where the truth then lies, cut to `bounds`."""
        reach = float(stdtrit(self.freedom, 0.5 + level / 2)) * self.error
        low, high = _cut(estimate, reach, (None, None))
        return _bounded(low - max(0.0, bias), high - min(0.0, bias), bounds)


def _long_run(rest: npt.NDArray[np.float64], own: float) -> tuple[float, float]:
    """The variance of the series' sum with Bartlett weights, no less than of independent groups, and its freedom."""
    groups = len(rest)
    rho = float(rest[1:] @ rest[:-1]) / own
    rho = min(max(rho + (1 + 3 * rho) / groups, 0.0), 0.97)  # its own bias undone
    wanted = max(1.1447 * (4 * rho**2 / (1 - rho**2) ** 2 * groups) ** (1 / 3), 0.75 * groups ** (1 / 3))
    lag = max(0, min(int(np.ceil(wanted)), groups // 3))
    across = sum((1 - j / (lag + 1)) * float(rest[j:] @ rest[:-j]) for j in range(1, lag + 1))
    variance = max(own, own + 2 * across) / (1 - (lag + 1) / groups)
    return variance, max(1.0, min(groups - 1, 1.5 * groups / (lag + 1) - 1))


class Jackknife:
    """Delete-one-block jackknife over the blocks of a stream, for any measure of a cloud.

    Neighbouring windows share documents; blocks of consecutive windows keep that dependence inside a block, where it
    does no harm.

    `parts` are the sums of the blocks; with `gram=False` second moments are left out, and only measures that need none
    can be asked.

    >>> import torch
    >>> from headscan.geometry import average_cosine
    >>> blocks = [Sums.of_rows(torch.randn(50, 4) + 3) for _ in range(8)]
    >>> low, high = Jackknife(blocks).interval(average_cosine)
    >>> low < high
    True
    """

    def __init__(self, parts: list[Sums], *, gram: bool = True):
        self._parts, self._gram = [part for part in parts if part.count > 0], gram

    @property
    def blocks(self) -> int:
        """Number of blocks that hold anything."""
        return len(self._parts)

    def interval(
        self,
        measure: Callable[[Cloud], float | None],
        *,
        level: float = 0.95,
        bounds: tuple[float | None, float | None] = (None, None),
    ) -> tuple[float, float] | None:
        """The interval of one measure, cut to `bounds`; see `intervals`."""
        return self.intervals([measure], level=level, bounds=[bounds])[0]

    def intervals(
        self,
        measures: Sequence[Callable[[Cloud], float | None]],
        *,
        level: float = 0.95,
        bounds: Sequence[tuple[float | None, float | None]],
    ) -> list[tuple[float, float] | None]:
        """The intervals θ ± t(B − 1)·√Var of several measures at a confidence level, each cut to its bounds.

        None where there are fewer than three blocks, or where a measure is undefined on a part. Blocks may be unequal
        (the last one is short), so the weighted form is used (Busing, Meijer and van der Leeden 1999): with h = n/n_b
        and θ₋ the measure without block b, the pseudo-values θ* = hθ − (h − 1)θ₋ have the centre
        Bθ − Σ(1 − 1/h)θ₋, and Var = (1/B) Σ (θ* − centre)²/(h − 1).

        Cost: B + 1 evaluations of each measure; one cloud with a block left out is in memory at a time.
        """
        if self.blocks < 3:
            return [None] * len(measures)
        whole = self._parts[0].copy()
        for part in self._parts[1:]:
            whole.merge(part)
        everything = Cloud.of_sums(whole, gram=self._gram)
        estimates = [measure(everything) for measure in measures]
        left_out: list[list[float | None]] = []
        for part in self._parts:
            cloud = Cloud.of_sums(whole.without(part), gram=self._gram)
            left_out.append([measure(cloud) for measure in measures])
        h = whole.count / np.array([part.count for part in self._parts], dtype=float)
        quantile = float(stdtrit(self.blocks - 1, 0.5 + level / 2))  # of Student's t
        return [
            None
            if estimate is None or None in values
            else _cut(estimate, quantile * _deviation(estimate, np.array(values, dtype=float), h), bound)
            for estimate, values, bound in zip(estimates, zip(*left_out, strict=True), bounds, strict=True)
        ]


def jackknifed(
    estimate: float,
    left_out: npt.NDArray[np.float64],
    weights: npt.NDArray[np.float64],
    *,
    level: float = 0.95,
    bounds: tuple[float | None, float | None] = (None, None),
) -> tuple[float, float]:
    """The interval of an estimate from its values with each block left out; `weights` are n/n_b of the blocks.

    >>> x = np.array([1.0, 2.0, 3.0, 6.0])
    >>> low, high = jackknifed(x.mean(), (x.sum() - x) / 3, np.full(4, 4.0))
    >>> bool(np.isclose(high - 3, stdtrit(3, 0.975) * x.std(ddof=1) / 2))   # of a mean: Student's own
    True
    """
    quantile = float(stdtrit(len(left_out) - 1, 0.5 + level / 2))
    return _cut(estimate, quantile * _deviation(estimate, left_out, weights), bounds)


def left_out(
    estimate: float | None,
    values: Sequence[float | None],
    sizes: Sequence[float] | npt.NDArray[np.float64],
    *,
    level: float = 0.95,
    bounds: tuple[float | None, float | None] = (None, None),
) -> list[float] | None:
    """`jackknifed` from the values with each block left out and the blocks' sizes; blocks of size zero are passed over.

    None where the estimate or a value is not defined, or fewer than three blocks hold anything.

    >>> low, high = left_out(3.0, [11 / 3, 10 / 3, 3.0, 2.0], [1, 1, 1, 1])      # the mean of 1, 2, 3, 6
    >>> low < 3 < high, left_out(3.0, [1.0, 2.0], [1, 1])
    (True, None)
    """
    sizes = np.asarray(sizes, dtype=float)
    kept = [(value, size) for value, size in zip(values, sizes, strict=True) if size > 0]
    if estimate is None or len(kept) < 3 or any(value is None for value, _ in kept):
        return None
    weights = sizes.sum() / np.array([size for _, size in kept])
    found = np.array([value for value, _ in kept], dtype=float)
    return list(jackknifed(estimate, found, weights, level=level, bounds=bounds))


def _deviation(estimate: float, left_out: npt.NDArray[np.float64], h: npt.NDArray[np.float64]) -> float:
    """√Var of the weighted delete-one-block jackknife."""
    centre = len(h) * estimate - ((1 - 1 / h) * left_out).sum()
    return float(((h * estimate - (h - 1) * left_out - centre) ** 2 / (h - 1)).mean() ** 0.5)


def _cut(estimate: float, reach: float, bounds: tuple[float | None, float | None]) -> tuple[float, float]:
    return _bounded(estimate - reach, estimate + reach, bounds)


def _bounded(least: float, most: float, bounds: tuple[float | None, float | None]) -> tuple[float, float]:
    low = -np.inf if bounds[0] is None else bounds[0]
    high = np.inf if bounds[1] is None else bounds[1]
    return max(least, low), min(most, high)
