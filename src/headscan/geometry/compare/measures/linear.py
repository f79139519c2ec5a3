"""Linear predictability: the share of the second site's variance that a linear map of the first accounts for."""

from __future__ import annotations

import torch
from torch import Tensor

from headscan.geometry.compare.covariance import CrossCovariance
from headscan.geometry.compare.similarity import SIMILARITIES, MomentMeasure, SimilarityWords

__all__ = ["Linear"]


@SIMILARITIES.register("linear")
class Linear(MomentMeasure):
    """R² = ‖W_xᵀC_xy‖² / tr C_yy of least squares from the first site to the second, adjusted for its p directions:
    1 − (1 − R²)(n − 1)/(n − p − 1).

    The adjustment takes tokens as independent; where documents hang together, some of the excess stays.
    """

    words = SimilarityWords(
        title="Linear predictability",
        sentence="The share of the second site's variance that a linear map of the first predicts.",
        formula="1 − (1 − R²)(n − 1)/(n − p − 1), R² = ‖C_xx^−½ C_xy‖² / tr C_yy",
        range=(-1.0, 1.0),
        invariant="of the first site any invertible map; of the second rotation, one scale, shift",
        source="Ezekiel 1930 for the adjustment; Kornblith et al. 2019, arXiv:1905.00414",
        cost="the same sums as CKA, and one product a pair",
        symmetric=False,
        order=50,
    )

    def value(self, pair: CrossCovariance) -> Tensor:
        """At most 1; NaN where there are no more tokens than directions.

        The variance of the second site is what its own whitened directions account for: the trace, computed alike.
        """
        explained = (pair.x.whitened.map.mT @ pair.xy).square().sum((-2, -1))
        whole = (pair.y.whitened.map.mT @ pair.y.matrix).square().sum((-2, -1))
        spare = pair.count - pair.x.whitened.kept - 1
        share = 1 - (1 - explained / whole) * (pair.count - 1) / spare
        return torch.where(spare > 0, share, torch.nan)
