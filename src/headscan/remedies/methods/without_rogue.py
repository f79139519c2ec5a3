"""The remedy that sets a few coordinates to zero."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from headscan.geometry.rogue import rogue_dimensions
from headscan.remedies.remedy import REMEDIES, AffineRemedy, FittingData, RemedyMethod
from headscan.run import Option, Settings

__all__ = ["WithoutRogue"]


@REMEDIES.register("without-rogue")
@dataclass(frozen=True, kw_only=True)
class WithoutRogue(RemedyMethod, Settings):
    """The coordinates that contribute most to the average cosine are set to zero; nothing is centred."""

    dimensions: Annotated[int, Option("How many coordinates.", low=1)] = 3

    def fit(self, data: FittingData) -> AffineRemedy | None:
        """See the class; `directions` are the sums of a `DirectionTally`, and None is there without them."""
        if data.directions is None:
            return None
        kept = np.ones(data.cloud.width)
        kept[[one.dimension for one in rogue_dimensions(data.directions, self.dimensions)]] = 0.0
        return AffineRemedy("without-rogue", np.zeros(data.cloud.width), np.diag(kept))
