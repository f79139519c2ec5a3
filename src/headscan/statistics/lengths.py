"""Sums of one site's vectors token by token: their lengths by position, and coordinates that dwarf the others."""

from __future__ import annotations

import torch
from torch import Tensor

from headscan.statistics.site_batch import SiteBatch
from headscan.statistics.tally import BlockedTally

__all__ = ["MASSIVE", "PLACES", "PeakTally", "PositionTally"]

PLACES = ((0, 1), (1, 2), (2, 16), (16, None))
"""Where lengths are told apart: position 0, position 1, 2 to 15, and from 16 on."""
MASSIVE = 1000.0
"""A coordinate is massive where it is so many times the median one of its vector (Sun et al. 2024, arXiv:2402.17762)."""


class PositionTally(BlockedTally):
    """Σ‖x‖ [4] and counts [4] over the positions of `PLACES`, the same of all (`norm`, `tokens`), windows, and the sum of
    the windows' variances of ‖x‖ (over T − 1)."""

    def shapes(self, width: int) -> dict[str, tuple[int, ...]]:
        """Four of each, and scalars."""
        return {"norms": (len(PLACES),), "counts": (len(PLACES),)} | dict.fromkeys(
            ("norm", "tokens", "windows", "spread"), ()
        )

    def measure(self, batch: SiteBatch) -> dict[str, Tensor]:
        """See `BlockedTally`."""
        norms, skipped = batch.norms, batch.skip_first
        parts = [
            norms[:, max(0, low - skipped) : None if high is None else max(0, high - skipped)] for low, high in PLACES
        ]
        one = norms.new_ones(len(norms))
        return {
            "norms": torch.stack([part.sum(1) for part in parts], dim=1),
            "counts": torch.stack([one * part.shape[1] for part in parts], dim=1),
            "norm": norms.sum(1),
            "tokens": one * norms.shape[1],
            "windows": one,
            "spread": norms.var(1) if norms.shape[1] > 1 else 0 * one,
        }


class PeakTally(BlockedTally):
    """Of each vector the largest |coordinate| over the median one (of an even number the lower): Σ of these ratios, how many
    reach `MASSIVE`, how many of those also 100, and of the massive ones which coordinate it is: how often, Σ|x|, Σx² [d].

    Vectors whose median is zero have no ratio; `tokens` counts the others.
    """

    def shapes(self, width: int) -> dict[str, tuple[int, ...]]:
        """Scalars, and three vectors."""
        return dict.fromkeys(("tokens", "windows", "ratio", "massive", "absolute"), ()) | dict.fromkeys(
            ("places", "sizes", "squares"), (width,)
        )

    def measure(self, batch: SiteBatch) -> dict[str, Tensor]:
        """See `BlockedTally`."""
        sizes = batch.rows.abs()
        largest, place = sizes.max(-1)
        median = sizes.median(-1).values
        known = median > 0
        ratio = torch.where(known, largest / median, 0.0)
        massive = (ratio >= MASSIVE).double()

        def by_place(values: Tensor) -> Tensor:
            return sizes.new_zeros(len(sizes), sizes.shape[-1]).scatter_add_(1, place, values)

        return {
            "tokens": known.double().sum(1),
            "windows": ratio.new_ones(len(ratio)),
            "ratio": ratio.sum(1),
            "massive": massive.sum(1),
            "absolute": (massive * (largest > 100)).sum(1),
            "places": by_place(massive),
            "sizes": by_place(massive * largest),
            "squares": by_place(massive * largest.square()),
        }
