"""The remedy that gives each coordinate the same distribution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from headscan.remedies.remedy import REMEDIES, FittingData, Remedy, RemedyMethod
from headscan.run import Option, Settings

__all__ = ["Quantile", "QuantileRemedy"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, repr=False)
class QuantileRemedy(Remedy):
    """Each coordinate by a line of straight pieces: y = start + slope·(x − k₀) + Σᵢ bendᵢ·max(0, x − kᵢ).

    Attributes:
        knots: kᵢ of each coordinate, ascending [K, d]. start, slope: at and before the first one [d].
        bends: by how much the slope changes at each knot [K, d]; the first is 0.
    """

    name: str
    knots: Floats
    start: Floats
    slope: Floats
    bends: Floats

    @property
    def widths(self) -> tuple[int, int]:
        """The width, which stays."""
        return len(self.start), len(self.start)

    def apply(self, rows: Floats) -> Floats:
        """See the class."""
        mapped: Floats = self.start + self.slope * (rows - self.knots[0])
        for knot, bend in zip(self.knots[1:], self.bends[1:], strict=True):
            mapped += bend * np.maximum(rows - knot, 0.0)
        return mapped

    def tensors(self) -> dict[str, npt.NDArray[np.float32]]:
        """The attributes by their names."""
        parts = {"knots": self.knots, "start": self.start, "slope": self.slope, "bends": self.bends}
        return {name: np.ascontiguousarray(value, dtype=np.float32) for name, value in parts.items()}

    @classmethod
    def of_tensors(cls, name: str, tensors: dict[str, Floats]) -> QuantileRemedy:
        """See `Remedy`."""
        return cls(name, tensors["knots"], tensors["start"], tensors["slope"], tensors["bends"])

    def config(self) -> dict[str, object]:
        """What the tensors are."""
        return {
            "remedy": self.name,
            "in_features": len(self.start),
            "form": "start + slope(x - k0) + sum bends relu(x - k)",
        }


@REMEDIES.register("quantile")
@dataclass(frozen=True, kw_only=True)
class Quantile(RemedyMethod, Settings):
    """Each coordinate bent so that its distribution is normal, by its quantiles (rank-based normal scores); beyond the outer
    ones it goes on straight. Not affine: it becomes no `Dense` module."""

    knots: Annotated[int, Option("Quantiles of each coordinate.", low=3, high=1025)] = 33

    def fit(self, data: FittingData) -> QuantileRemedy | None:
        """See the class; `sample` are the vectors whose quantiles are taken, and None is there without them."""
        if data.sample is None or len(data.sample) < 2:
            return None
        shares = (np.arange(self.knots) + 0.5) / self.knots
        knots = np.quantile(data.sample, shares, axis=0)
        scores = ndtri(shares)
        slopes = np.zeros((self.knots, knots.shape[1]))
        start = np.zeros(knots.shape[1])
        for column in range(knots.shape[1]):
            # Knots that fall together (a coordinate that is often the same) are one, at the mean of their scores.
            own, place = np.unique(knots[:, column], return_inverse=True)
            mean = np.bincount(place, weights=scores) / np.bincount(place)
            start[column] = mean[0]
            if len(own) > 1:
                first = np.searchsorted(knots[:, column], own[:-1], side="left")
                steps = np.diff(mean) / np.diff(own)
                slopes[:, column] = steps[np.searchsorted(first, np.arange(self.knots), side="right") - 1]
        bends = np.diff(slopes, axis=0, prepend=slopes[:1])
        return QuantileRemedy("quantile", knots, start, slopes[0], bends)
