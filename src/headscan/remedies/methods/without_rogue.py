"""The remedy that sets a few coordinates to zero."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from headscan.geometry.rogue import rogue_dimensions
from headscan.remedies.remedy import REMEDIES, Remedy, RemedyMethod
from headscan.run import Option, Settings
from headscan.statistics import Cloud, Tally

__all__ = ["WithoutRogue"]


@REMEDIES.register("without-rogue")
@dataclass(frozen=True, kw_only=True)
class WithoutRogue(RemedyMethod, Settings):
    """The coordinates that contribute most to the average cosine are set to zero; nothing is centred."""

    dimensions: Annotated[int, Option("How many coordinates.", low=1)] = 3

    def fit(self, cloud: Cloud, directions: Tally | None = None) -> Remedy | None:
        """See the class; `directions` are the sums of a `DirectionTally`."""
        if directions is None:
            return None
        kept = np.ones(cloud.width)
        kept[[one.dimension for one in rogue_dimensions(directions, self.dimensions)]] = 0.0
        return Remedy("without-rogue", np.zeros(cloud.width), np.diag(kept))
