"""The remedy that takes the strongest directions away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from headscan.remedies.remedy import REMEDIES, AffineRemedy, FittingData, RemedyMethod
from headscan.remedies.spectrum import components
from headscan.run import Option, Settings

__all__ = ["AllButTheTop"]


@REMEDIES.register("all-but-the-top")
@dataclass(frozen=True, kw_only=True)
class AllButTheTop(RemedyMethod, Settings):
    """Centre, then take the top principal components out (Mu and Viswanath 2018)."""

    remove: Annotated[int | None, Option("Components to take out. Default: a hundredth of all.", low=0)] = None

    def fit(self, data: FittingData) -> AffineRemedy:
        """See the class."""
        width = data.cloud.width
        top = components(data.cloud)[1][:, : max(1, width // 100) if self.remove is None else self.remove]
        return AffineRemedy("all-but-the-top", data.cloud.mean, np.eye(width) - top @ top.T)
