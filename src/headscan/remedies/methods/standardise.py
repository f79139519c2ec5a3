"""The remedy that gives each coordinate the same spread."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headscan.remedies.remedy import REMEDIES, AffineRemedy, FittingData, RemedyMethod
from headscan.remedies.spectrum import deviations
from headscan.run import Settings

__all__ = ["Standardise"]


@REMEDIES.register("standardise")
@dataclass(frozen=True, kw_only=True)
class Standardise(RemedyMethod, Settings):
    """(x − μ)/σ of each dimension by itself (Timkey and van Schijndel 2021); constant dimensions become zero."""

    def fit(self, data: FittingData) -> AffineRemedy:
        """See the class."""
        deviation = deviations(data.cloud)
        scale = np.where(deviation > 0, 1 / np.where(deviation > 0, deviation, 1.0), 0.0)
        return AffineRemedy("standardise", data.cloud.mean, np.diag(scale))
