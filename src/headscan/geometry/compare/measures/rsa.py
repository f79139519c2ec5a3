"""Representational similarity analysis: do the two agree which tokens lie far apart?"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from headscan.geometry.compare.similarity import SIMILARITIES, RelationMeasure, SimilarityWords

__all__ = ["Rsa"]


@SIMILARITIES.register("rsa")
class Rsa(RelationMeasure):
    """Spearman's correlation of the two tables of distances (1 − cosine about the sample's mean) between tokens."""

    words = SimilarityWords(
        title="RSA",
        sentence="Whether the two agree which tokens lie far apart: rank correlation of all distances in a sample.",
        formula="Spearman(D_x, D_y), D = 1 − cos(x − x̄, x' − x̄)",
        range=(-1.0, 1.0),
        invariant="rotation, one scale for all coordinates, shift",
        source="Kriegeskorte et al. 2008, doi:10.3389/neuro.06.004.2008",
        cost="O(n²d) a site and O(n²) a pair, n tokens of the sample",
        tokens="sample",
        order=60,
    )

    def relation(self, rows: Tensor) -> Tensor:
        """Ranks of the distances about their mean, zero on the diagonal; equal distances are ranked in order."""
        about = torch.nn.functional.normalize(rows - rows.mean(0), dim=1)
        upper = torch.ones(len(rows), len(rows), dtype=torch.bool, device=rows.device).triu(1)
        order = _ordered((1 - about @ about.T)[upper])
        ranks = torch.empty(len(order), dtype=rows.dtype, device=rows.device)
        ranks[order] = torch.arange(len(order), dtype=rows.dtype, device=rows.device) - (len(order) - 1) / 2
        found = rows.new_zeros(len(rows), len(rows)).masked_scatter_(upper, ranks)
        return found + found.T


def _ordered(values: Tensor) -> Tensor:
    """The stable order of values [n]. Of float32 on a CPU their bits are sorted by radix, lower half first: twice as fast.

    >>> _ordered(torch.tensor([0.5, -1.0, 0.5, 0.0, -0.0])).tolist()
    [1, 3, 4, 0, 2]
    """
    if values.dtype != torch.float32 or values.device.type != "cpu":
        return values.argsort(stable=True)
    bits = (values + 0.0).view(torch.int32).numpy()  # −0 becomes 0
    bits = np.where(bits < 0, ~bits, bits ^ np.int32(-(2**31))).view(np.uint32)  # ordered as the values are
    order = np.argsort(bits.astype(np.uint16), kind="stable")
    return torch.from_numpy(order[np.argsort((bits >> 16).astype(np.uint16)[order], kind="stable")])
