"""Confidence intervals from parts left out: how much would a number have moved, had a block of the text been another?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from headscan.statistics import Cloud, Sums

__all__ = ["Jackknife", "bounded", "jackknifed", "left_out"]


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
    return bounded(estimate - reach, estimate + reach, bounds)


def bounded(least: float, most: float, bounds: tuple[float | None, float | None]) -> tuple[float, float]:
    """An interval cut to what can be."""
    low = -np.inf if bounds[0] is None else bounds[0]
    high = np.inf if bounds[1] is None else bounds[1]
    return max(least, low), min(most, high)
