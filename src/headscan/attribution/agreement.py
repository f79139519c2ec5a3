"""How far maps agree with each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headscan.attribution.method import AttributionMap

__all__ = ["Agreement", "agreement"]

Numbers = npt.NDArray[np.float32 | np.float64]


@dataclass(frozen=True)
class Agreement:
    """Spearman's rank correlation of two maps over units (None where one is constant), and the share of their `top`
    largest units that they have in common; averaged over predictions."""

    methods: tuple[str, str]
    spearman: float | None
    top: int
    shared_top: float


def agreement(maps: dict[str, AttributionMap]) -> list[Agreement]:
    """How far every two maps agree."""
    from scipy.stats import rankdata

    def correlation(a: Numbers, b: Numbers) -> float:
        x, y = (rankdata(values) - (len(values) + 1) / 2 for values in (a, b))
        size = np.sqrt((x * x).sum() * (y * y).sum())
        return float((x * y).sum() / size) if size else float("nan")

    found = []
    named = list(maps.items())
    for i, (one, first) in enumerate(named):
        for other, second in named[i + 1 :]:
            top = min(5, first.units.shape[1])
            rows = list(zip(first.units, second.units, strict=True))
            shared = [
                len(set(np.argsort(-np.abs(a))[:top].tolist()) & set(np.argsort(-np.abs(b))[:top].tolist())) / top
                for a, b in rows
            ]
            spearman = _mean([correlation(a, b) for a, b in rows])
            found.append(Agreement((one, other), spearman if np.isfinite(spearman) else None, top, _mean(shared)))
    return found


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))
