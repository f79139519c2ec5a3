"""Whitening that keeps each coordinate what it was as far as can be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headscan.remedies.remedy import REMEDIES, AffineRemedy, FittingData, RemedyMethod
from headscan.remedies.spectrum import deviations, inverse_root
from headscan.run import Settings

__all__ = ["ZcaCorr"]


@REMEDIES.register("zca-corr")
@dataclass(frozen=True, kw_only=True)
class ZcaCorr(RemedyMethod, Settings):
    """(x − μ)·diag(σ)⁻¹·P^−½ with P the correlations: of all whitenings the one whose coordinates correlate most with those
    before (Kessy, Lewin and Strimmer 2018). Constant coordinates become zero."""

    def fit(self, data: FittingData) -> AffineRemedy:
        """See the class."""
        deviation = deviations(data.cloud)
        scale = np.where(deviation > 0, 1 / np.where(deviation > 0, deviation, 1.0), 0.0)
        correlation = scale[:, None] * data.cloud.covariance * scale
        return AffineRemedy("zca-corr", data.cloud.mean, scale[:, None] * inverse_root(correlation))
