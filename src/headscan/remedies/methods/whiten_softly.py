"""Whitening that goes part of the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from headscan.remedies.remedy import REMEDIES, AffineRemedy, FittingData, RemedyMethod
from headscan.remedies.spectrum import components
from headscan.run import Option, Settings

__all__ = ["WhitenSoftly"]


@REMEDIES.register("whiten-softly")
@dataclass(frozen=True, kw_only=True)
class WhitenSoftly(RemedyMethod, Settings):
    """(x − μ)·V·diag(λ)^(−power/2)·Vᵀ: between centring (power 0) and ZCA whitening (power 1)."""

    power: Annotated[float, Option("Of whitening, 0 to 1.", low=0, high=1)] = 0.5

    def fit(self, data: FittingData) -> AffineRemedy:
        """See the class."""
        values, vectors = components(data.cloud)
        return AffineRemedy("whiten-softly", data.cloud.mean, (vectors * values ** (-self.power / 2)) @ vectors.T)
