"""SVCCA: mean canonical correlation of the principal components."""

from __future__ import annotations

import torch
from torch import Tensor

from headscan.geometry.compare.covariance import CrossCovariance
from headscan.geometry.compare.similarity import SIMILARITIES, MomentMeasure, SimilarityWords

__all__ = ["Svcca"]


@SIMILARITIES.register("svcca")
class Svcca(MomentMeasure):
    """The mean of the canonical correlations of the principal components that hold 99 % of each side's variance."""

    words = SimilarityWords(
        title="SVCCA",
        sentence="How strongly the best matched directions correlate, on average, among those with 99 % of the variance.",
        formula="mean ρᵢ, i = 1 … min(k_x, k_y)",
        range=(0.0, 1.0),
        invariant="rotation, one scale for all coordinates, shift",
        source="Raghu et al. 2017, arXiv:1706.05806",
        cost="the same sums as CKA, and one singular value decomposition a pair",
        order=30,
    )

    def value(self, pair: CrossCovariance) -> Tensor:
        """In [0, 1]; NaN where there are no more tokens than components, for then all correlations are 1."""
        kept = torch.minimum(pair.x.principal.kept, pair.y.principal.kept)
        known = pair.count > pair.x.principal.kept + pair.y.principal.kept
        return torch.where(known & (kept > 0), pair.principal_correlations.sum(-1) / kept, torch.nan)
