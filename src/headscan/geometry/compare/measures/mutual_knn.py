"""Mutual nearest neighbours: how many of a token's ten nearest are the same on both sides."""

from __future__ import annotations

import torch
from torch import Tensor

from headscan.geometry.compare.similarity import SIMILARITIES, RelationMeasure, SimilarityWords

__all__ = ["MutualKnn"]

NEIGHBOURS = 10


@SIMILARITIES.register("mutual_knn")
class MutualKnn(RelationMeasure):
    """The mean of |N_x(i) ∩ N_y(i)|/10, N the ten tokens of the sample with the greatest cosine.

    Of unrelated sites it is 10/(n − 1). It depends on n: values of samples of different sizes are not comparable.
    """

    words = SimilarityWords(
        title="Mutual neighbours",
        sentence="How many of a token's ten nearest in a sample are the same on both sides, on average.",
        formula="mean |N_x(i) ∩ N_y(i)| / 10",
        range=(0.0, 1.0),
        invariant="rotation, scale of each token",
        source="Huh et al. 2024, arXiv:2405.07987",
        cost="O(n²d) a site and O(n²) a pair, n tokens of the sample",
        tokens="sample",
        order=70,
    )

    def relation(self, rows: Tensor) -> Tensor:
        """1 where a column is among the ten nearest of its row."""
        unit = torch.nn.functional.normalize(rows, dim=1)
        cosines = (unit @ unit.T).fill_diagonal_(-torch.inf)
        nearest = cosines.topk(min(NEIGHBOURS, len(rows) - 1), dim=1).indices
        return torch.zeros_like(cosines).scatter_(1, nearest, 1.0)
