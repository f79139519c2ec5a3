"""A confidence interval from blocks: how much would a measure have moved, had a part of the text been another?"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.stats import t as student

from headscan.statistics import Cloud, Sums

__all__ = ["Jackknife", "jackknifed"]


class Jackknife:
    """Delete-one-block jackknife over the blocks of a stream, for any measure of a cloud.

    The clouds with one block left out are made once and shared by all measures. Neighbouring windows share documents;
    blocks of consecutive windows keep that dependence inside a block, where it does no harm.

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
        parts = [part for part in parts if part.count > 0]
        self.blocks = len(parts)
        if not parts:
            return
        whole = parts[0].copy()
        for part in parts[1:]:
            whole.merge(part)
        self._whole = Cloud.of_sums(whole, gram=gram)
        self._left_out = [Cloud.of_sums(whole.without(part), gram=gram) for part in parts] if self.blocks > 2 else []
        self._weights = whole.count / np.array([part.count for part in parts], dtype=float)

    def interval(
        self,
        measure: Callable[[Cloud], float | None],
        *,
        level: float = 0.95,
        bounds: tuple[float | None, float | None] = (None, None),
    ) -> tuple[float, float] | None:
        """The interval θ ± t(B − 1)·√Var of the measure at a confidence level, cut to `bounds`.

        None where there are fewer than three blocks, or where the measure is undefined on a part. Blocks may be unequal
        (the last one is short), so the weighted form is used (Busing, Meijer and van der Leeden 1999): with h = n/n_b
        and θ₋ the measure without block b, the pseudo-values θ* = hθ − (h − 1)θ₋ have the centre
        Bθ − Σ(1 − 1/h)θ₋, and Var = (1/B) Σ (θ* − centre)²/(h − 1). Cost: B + 1 evaluations of the measure.
        """
        if self.blocks < 3:
            return None
        estimate = measure(self._whole)
        values = [measure(cloud) for cloud in self._left_out]
        if estimate is None or any(value is None for value in values):
            return None
        return jackknifed(estimate, np.array(values, dtype=float), self._weights, level=level, bounds=bounds)


def jackknifed(
    estimate: float,
    left_out: np.ndarray,
    weights: np.ndarray,
    *,
    level: float = 0.95,
    bounds: tuple[float | None, float | None] = (None, None),
) -> tuple[float, float]:
    """The interval of an estimate from its values with each block left out; `weights` are n/n_b of the blocks.

    >>> x = np.array([1.0, 2.0, 3.0, 6.0])
    >>> low, high = jackknifed(x.mean(), (x.sum() - x) / 3, np.full(4, 4.0))
    >>> bool(np.isclose(high - 3, student.ppf(0.975, 3) * x.std(ddof=1) / 2))   # of a mean: Student's own
    True
    """
    h, blocks = weights, len(left_out)
    centre = blocks * estimate - float(((1 - 1 / h) * left_out).sum())
    variance = float(((h * estimate - (h - 1) * left_out - centre) ** 2 / (h - 1)).mean())
    reach = float(student.ppf(0.5 + level / 2, blocks - 1)) * variance**0.5
    low = -np.inf if bounds[0] is None else bounds[0]
    high = np.inf if bounds[1] is None else bounds[1]
    return max(estimate - reach, low), min(estimate + reach, high)
