"""Sums of directions, of each dimension and of each window: for rogue dimensions and for cosines in and between texts."""

from __future__ import annotations

import torch
from torch import Tensor

from headscan.statistics.site_batch import SiteBatch
from headscan.statistics.tally import REST, BlockedTally

__all__ = ["ContextTally", "DirectionTally", "FollowTally"]


class DirectionTally(BlockedTally):
    """Σû and Σû² of each dimension, and how many directions there were: all that rogue dimensions need.

    >>> tally = DirectionTally(2)
    >>> tally.update(SiteBatch("s", torch.tensor([[[0.0, 2.0], [3.0, 0.0]]]), torch.tensor([[0, 1]]), [0]))
    >>> tally.total()["unit"].tolist(), tally.total()["square"].tolist(), tally.total()["tokens"].item()
    ([1.0, 1.0], [1.0, 1.0], 2.0)
    >>> tally.total()["unit_rest"].tolist()
    [1.0, 0.0]
    """

    def shapes(self, width: int) -> dict[str, tuple[int, ...]]:
        """`tokens` (of a norm other than zero), `unit` and `square` [width]; the same of the rest."""
        return _both({"tokens": (), "unit": (width,), "square": (width,)})

    def measure(self, batch: SiteBatch) -> dict[str, Tensor]:
        """Sums over each window's tokens."""
        tokens = (batch.norms > 0).double()
        square, first = batch.unit.square().sum(1), batch.unit[:, : batch.lead]
        return {
            "tokens": tokens.sum(1),
            "unit": batch.unit_sum,
            "square": square,
            "tokens_rest": tokens[:, batch.lead :].sum(1),
            "unit_rest": batch.unit_sum - first.sum(1),
            "square_rest": square - first.square().sum(1),
        }


class ContextTally(BlockedTally):
    """What splits the average cosine into pairs within one window and pairs of two windows.

    For a window w with n_w directions that sum to s_w: `windows` 1, `tokens` n_w, `square_tokens` n_w², `unit` s_w,
    `own` ‖s_w‖², and `intra`, the mean cosine of its vectors to their own (uncentred) mean.
    """

    def shapes(self, width: int) -> dict[str, tuple[int, ...]]:
        """Five scalars and one vector; the same of the rest."""
        return _both({"windows": (), "tokens": (), "square_tokens": (), "unit": (width,), "own": (), "intra": ()})

    def measure(self, batch: SiteBatch) -> dict[str, Tensor]:
        """Of each window; one without any direction adds nothing."""
        tokens, unit, total = (batch.norms > 0).double(), batch.unit_sum, batch.rows.sum(1)
        lead = slice(0, batch.lead)
        rest = tokens[:, batch.lead :].sum(1), unit - batch.unit[:, lead].sum(1), total - batch.rows[:, lead].sum(1)
        found = _windows(tokens.sum(1), unit, total)
        return found | {name + REST: value for name, value in _windows(*rest).items()}


class FollowTally(BlockedTally):
    """How near a state's direction is to that of the embedding of the token that comes next: `pairs`, `cosine`, and
    the sums of both directions, `unit` and `next`, which say what mismatched pairs give.

    `table` [V, width] is the embedding table; it is no part of the state, so a restored tally can merge and finish but
    must be given a table (`tally.table = ...`, rows of length 1) before it sees more.
    """

    table: Tensor | None = None

    def shapes(self, width: int) -> dict[str, tuple[int, ...]]:
        """Pairs, the sum of their cosines, two vectors; the same of the rest."""
        return _both({"pairs": (), "cosine": (), "unit": (width,), "next": (width,)})

    def measure(self, batch: SiteBatch) -> dict[str, Tensor]:
        """Sums over each window's positions that have a successor."""
        assert self.table is not None
        targets = self.table[batch.next_ids.clamp(min=0)]
        known = (batch.next_ids >= 0) & (batch.norms > 0)
        products = torch.linalg.vecdot(batch.unit.to(targets.dtype), targets).double()
        cosine = torch.where(known, products, 0.0)
        pairs = known.double()
        # One product gives the sums of the directions that have a successor, with and without position 0.
        weights = torch.stack([pairs, torch.nn.functional.pad(pairs[:, batch.lead :], (batch.lead, 0))], dim=1)
        units = torch.bmm(weights, batch.unit)
        nexts = torch.bmm(weights.to(targets.dtype), targets).double()
        return {
            "pairs": pairs.sum(1),
            "cosine": cosine.sum(1),
            "unit": units[:, 0],
            "next": nexts[:, 0],
            "pairs_rest": pairs[:, batch.lead :].sum(1),
            "cosine_rest": cosine[:, batch.lead :].sum(1),
            "unit_rest": units[:, 1],
            "next_rest": nexts[:, 1],
        }


def _both(shapes: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """The sums, and the same without position 0."""
    return shapes | {name + REST: shape for name, shape in shapes.items()}


def _windows(tokens: Tensor, unit: Tensor, total: Tensor) -> dict[str, Tensor]:
    """The sums of `ContextTally` from the number of directions [B], their sums and the sums of the vectors [B, width]."""
    length = torch.linalg.vector_norm(total, dim=-1) * tokens
    return {
        "windows": (length > 0).double(),
        "tokens": tokens,
        "square_tokens": tokens.square(),
        "unit": unit,
        "own": unit.square().sum(-1),
        "intra": torch.where(length > 0, (total * unit).sum(-1) / length, 0.0),
    }
