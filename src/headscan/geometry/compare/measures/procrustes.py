"""Procrustes similarity: how well a rotation takes one cloud to the other."""

from __future__ import annotations

from torch import Tensor

from headscan.geometry.compare.covariance import CrossCovariance
from headscan.geometry.compare.similarity import SIMILARITIES, MomentMeasure, SimilarityWords

__all__ = ["Procrustes"]


@SIMILARITIES.register("procrustes")
class Procrustes(MomentMeasure):
    """‖C_xy‖_* / √(tr C_xx · tr C_yy): one minus half of the squared Procrustes distance of the clouds at length one.

    Its arc cosine is a metric (Williams et al. 2021). Of unrelated round clouds of d dimensions it is about .85·√(d/n).
    """

    words = SimilarityWords(
        title="Procrustes",
        sentence="How much of the two clouds a rotation and one scale bring to lie on one another.",
        formula="‖C_xy‖_* / √(tr C_xx·tr C_yy)",
        range=(0.0, 1.0),
        invariant="rotation, one scale for all coordinates, shift",
        source="Schönemann 1966; Williams et al. 2021, arXiv:2110.14739",
        cost="the same sums as CKA, and one singular value decomposition a pair",
        order=20,
    )

    def value(self, pair: CrossCovariance) -> Tensor:
        """In [0, 1]. The trace is written as a nuclear norm, too: equal sites then give 1 whatever the rounding."""
        return pair.nuclear / (pair.x.nuclear * pair.y.nuclear).sqrt()
