"""Whitening of a covariance that is drawn towards a ball."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from headscan.remedies.remedy import REMEDIES, AffineRemedy, FittingData, RemedyMethod
from headscan.run import Option, Settings

__all__ = ["WhitenShrunk"]


@REMEDIES.register("whiten-shrunk")
@dataclass(frozen=True, kw_only=True)
class WhitenShrunk(RemedyMethod, Settings):
    """ZCA whitening of (1 − s)C + s·(tr C/d)·I: few vectors do not blow up directions they know little of (the shrinkage
    of Ledoit and Wolf 2004, s given; the ε of soft-ZCA, Diera et al. 2024)."""

    shrinkage: Annotated[float, Option("s, 0 to 1.", above=0, high=1)] = 0.1

    def fit(self, data: FittingData) -> AffineRemedy | None:
        """See the class; None where all vectors are one."""
        covariance, width = data.cloud.covariance, data.cloud.width
        ball = float(np.trace(covariance)) / width
        if not ball > 0:
            return None
        values, vectors = np.linalg.eigh((1 - self.shrinkage) * covariance + self.shrinkage * ball * np.eye(width))
        return AffineRemedy("whiten-shrunk", data.cloud.mean, (vectors / np.sqrt(values)) @ vectors.T)
