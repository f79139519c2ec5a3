"""Sums of directions, of each dimension and of each window: for rogue dimensions and for cosines in and between texts."""

from __future__ import annotations

import torch
from torch import Tensor

from headscan.statistics.seen import Seen
from headscan.statistics.tally import BlockedTally

__all__ = ["ContextTally", "DirectionTally", "FollowTally"]


class DirectionTally(BlockedTally):
    """Σû and Σû² of each dimension, and how many directions there were: all that rogue dimensions need.

    >>> tally = DirectionTally(2)
    >>> tally.see(Seen("s", torch.tensor([[[0.0, 2.0], [3.0, 0.0]]]), torch.tensor([[0, 1]]), [0]))
    >>> tally.total()["unit"].tolist(), tally.total()["square"].tolist(), tally.total()["tokens"].item()
    ([1.0, 1.0], [1.0, 1.0], 2.0)
    """

    def shapes(self, width: int) -> dict[str, tuple[int, ...]]:
        """`tokens` (of a norm other than zero), `unit` and `square` [width]."""
        return {"tokens": (), "unit": (width,), "square": (width,)}

    def measure(self, seen: Seen) -> dict[str, Tensor]:
        """Sums over each window's tokens."""
        return {
            "tokens": (seen.norms > 0).double().sum(1),
            "unit": seen.unit_sum,
            "square": seen.unit.square().sum(1),
        }


class ContextTally(BlockedTally):
    """What splits the average cosine into pairs within one window and pairs of two windows.

    For a window w with n_w directions that sum to s_w: `windows` 1, `tokens` n_w, `square_tokens` n_w², `unit` s_w,
    `own` ‖s_w‖², and `intra`, the mean cosine of its vectors to their own (uncentred) mean.
    """

    def shapes(self, width: int) -> dict[str, tuple[int, ...]]:
        """Five scalars and one vector."""
        return {"windows": (), "tokens": (), "square_tokens": (), "unit": (width,), "own": (), "intra": ()}

    def measure(self, seen: Seen) -> dict[str, Tensor]:
        """Of each window; one without any direction adds nothing."""
        tokens = (seen.norms > 0).double().sum(1)
        unit, mean = seen.unit_sum, seen.rows.sum(1)
        length = torch.linalg.vector_norm(mean, dim=-1) * tokens
        return {
            "windows": (length > 0).double(),
            "tokens": tokens,
            "square_tokens": tokens.square(),
            "unit": unit,
            "own": unit.square().sum(-1),
            "intra": torch.where(length > 0, (mean * unit).sum(-1) / length, 0.0),
        }


class FollowTally(BlockedTally):
    """How near a state's direction is to that of the embedding of the token that comes next: `pairs` and `cosine`.

    `table` [V, width] is the embedding table; it is no part of the state, so a restored tally can merge and finish but
    must be given a table (`tally.table = ...`, rows of length 1) before it sees more.
    """

    table: Tensor | None = None

    def shapes(self, width: int) -> dict[str, tuple[int, ...]]:
        """Pairs and the sum of their cosines."""
        return {"pairs": (), "cosine": ()}

    def measure(self, seen: Seen) -> dict[str, Tensor]:
        """Sums over each window's positions that have a successor."""
        assert self.table is not None
        targets = self.table[seen.next_ids.clamp(min=0)]
        known = (seen.next_ids >= 0) & (seen.norms > 0)
        products = torch.linalg.vecdot(seen.unit.to(targets.dtype), targets).double()
        cosine = torch.where(known, products, 0.0)
        return {"pairs": known.double().sum(1), "cosine": cosine.sum(1)}
