"""Debiased linear CKA."""

from __future__ import annotations

import torch
from torch import Tensor

from headscan.geometry.compare.covariance import CrossCovariance
from headscan.geometry.compare.similarity import SIMILARITIES, MomentMeasure, SimilarityWords

__all__ = ["Cka"]


@SIMILARITIES.register("cka")
class Cka(MomentMeasure):
    """HSIC₁(x, y) / √(HSIC₁(x, x)·HSIC₁(y, y)), of the unbiased HSIC (`headscan.statistics.cross.unbiased_hsic`).

    Where only covariances are known (parts of a text that an interval leaves out) it is the one that is not debiased.
    """

    words = SimilarityWords(
        title="CKA",
        sentence="How far the two agree which tokens are alike, by inner products about the mean; 0 on average if unrelated.",
        formula="HSIC₁(X, Y) / √(HSIC₁(X, X)·HSIC₁(Y, Y))",
        range=(-1.0, 1.0),
        invariant="rotation, one scale for all coordinates, shift",
        source="Kornblith et al. 2019, arXiv:1905.00414; Song et al. 2012 for the debiasing",
        cost="2·d·d' operations a token and pair, one pass",
        order=10,
    )

    def value(self, pair: CrossCovariance) -> Tensor:
        """In [−1, 1], 1 where the inner products are proportional; a little beyond 1 can happen with few tokens."""
        if pair.hsic is None:
            return pair.xy.square().sum((-2, -1)) / (pair.x.norm * pair.y.norm)
        between, x, y = pair.hsic
        return between / torch.where((x > 0) & (y > 0), x * y, torch.nan).sqrt()
