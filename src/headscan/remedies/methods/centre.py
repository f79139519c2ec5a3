"""The remedy that takes the mean away."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headscan.remedies.remedy import REMEDIES, AffineRemedy, FittingData, RemedyMethod
from headscan.run import Settings

__all__ = ["Centre"]


@REMEDIES.register("centre")
@dataclass(frozen=True, kw_only=True)
class Centre(RemedyMethod, Settings):
    """x − μ: takes the drift away (Biś et al. 2021). The average cosine of the centred cloud is near 0."""

    def fit(self, data: FittingData) -> AffineRemedy:
        """See the class."""
        return AffineRemedy("centre", data.cloud.mean, np.eye(data.cloud.width))
