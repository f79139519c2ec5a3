"""The remedy that makes the covariance the identity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from headscan.remedies.remedy import REMEDIES, AffineRemedy, FittingData, RemedyMethod
from headscan.remedies.spectrum import components
from headscan.run import Option, Settings

__all__ = ["Whiten"]


@REMEDIES.register("whiten")
@dataclass(frozen=True, kw_only=True)
class Whiten(RemedyMethod, Settings):
    """(x − μ)·V·diag(λ)^−½ of the largest principal components (Su et al. 2021, arXiv:2103.15316).

    Components below 1e-10 of the largest variance are rounding, and are dropped rather than blown up; the map's output
    has as many dimensions as remain. The covariance of the fitted cloud becomes the identity. Cosines are those of ZCA,
    which turns the result back by a rotation.
    """

    keep: Annotated[int | None, Option("Components to keep. Default: all.", low=1)] = None

    def fit(self, data: FittingData) -> AffineRemedy:
        """See the class."""
        values, vectors = components(data.cloud)
        kept = min(self.keep or len(values), len(values))
        return AffineRemedy("whiten", data.cloud.mean, vectors[:, :kept] / np.sqrt(values[:kept]))
