"""PWCCA: canonical correlations weighted by how much of the first site they account for."""

from __future__ import annotations

import torch
from torch import Tensor

from headscan.geometry.compare.covariance import CrossCovariance
from headscan.geometry.compare.similarity import SIMILARITIES, MomentMeasure, SimilarityWords

__all__ = ["Pwcca"]


@SIMILARITIES.register("pwcca")
class Pwcca(MomentMeasure):
    """Σ αᵢρᵢ / Σ αᵢ over all canonical directions hᵢ of the first site, αᵢ = Σⱼ |⟨hᵢ, xⱼ⟩| over its coordinates xⱼ.

    ⟨hᵢ, xⱼ⟩ is an entry of C_xx·w, w the direction's weights: sums suffice. The two sites are not exchangeable.
    """

    words = SimilarityWords(
        title="PWCCA",
        sentence="How strongly the best matched directions correlate, each weighted by its part in the first site.",
        formula="Σ αᵢρᵢ / Σ αᵢ, αᵢ = Σⱼ |⟨hᵢ, xⱼ⟩|",
        range=(0.0, 1.0),
        invariant="shift; of the second site any invertible map",
        source="Morcos et al. 2018, arXiv:1806.05759",
        cost="the same sums as CKA, and one singular value decomposition a pair",
        symmetric=False,
        order=40,
    )

    def value(self, pair: CrossCovariance) -> Tensor:
        """In [0, 1]; NaN where there are no more tokens than directions."""
        correlations, directions = pair.canonical
        weights = (pair.x.whitened.back @ directions).abs().sum(-2)
        kept = pair.x.whitened.kept, pair.y.whitened.kept
        known = pair.count > kept[0] + kept[1]
        # Of what the smaller site has no direction for, any basis would do: it counts for nothing.
        places = torch.arange(weights.shape[-1], device=weights.device)
        weights = weights * (places < torch.minimum(*kept)[..., None])
        return torch.where(known, (weights * correlations).sum(-1) / weights.sum(-1), torch.nan)
