"""The remedy that damps strong directions in place of cutting them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from headscan.remedies.remedy import REMEDIES, AffineRemedy, FittingData, RemedyMethod
from headscan.run import Option, Settings

__all__ = ["Conceptor"]


@REMEDIES.register("conceptor")
@dataclass(frozen=True, kw_only=True)
class Conceptor(RemedyMethod, Settings):
    """x·(I − M(M + α⁻²·I·tr M/d)⁻¹) with M the second moment about the origin: a softer all-but-the-top, not centred (Liu,
    Ungar and Sedoc 2019, conceptor negation; α here in units of the mean energy of a direction)."""

    aperture: Annotated[float, Option("α: the larger, the more is damped.", above=0)] = 2.0

    def fit(self, data: FittingData) -> AffineRemedy | None:
        """See the class; None of vectors that are all zero."""
        moment, width = data.cloud.second_moment, data.cloud.width
        mean = float(np.trace(moment)) / width
        if not mean > 0:
            return None
        values, vectors = np.linalg.eigh(moment)
        damp = mean / self.aperture**2
        kept = damp / (np.clip(values, 0, None) + damp)
        return AffineRemedy("conceptor", np.zeros(width), (vectors * kept) @ vectors.T)
