"""The multiset of target tokens, as unique ids and their counts."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from headscan.run import BadInput

__all__ = ["Pool", "pool_of"]


class Pool(NamedTuple):
    """The tokens that a contrastive loss compares against.

    ids: int64 [U], the distinct token ids, ascending. counts: int64 [U], how often each occurs in the pool.
    positions: int64 [K], where the target of each of the K rows stands in `ids`.
    """

    ids: Tensor
    counts: Tensor
    positions: Tensor

    @property
    def log_counts(self) -> Tensor:
        """[U]: log of the counts, the bias that makes unique tokens weigh as the whole pool would.

        float64, or float32 on Apple's devices, which have no other.
        """
        return self.counts.to(torch.float32 if self.counts.device.type == "mps" else torch.float64).log()


def pool_of(targets: Tensor, pool: Tensor | None = None) -> Pool:
    """Distinct tokens of `pool` (int64 [P], default the targets themselves), and where each target [K] is among them.

    Cost: one sort of P integers. Raises BadInput when a target is missing from the pool, because then the loss would
    have no positive.

    >>> pool = pool_of(torch.tensor([7, 2, 7]))
    >>> pool.ids.tolist(), pool.counts.tolist(), pool.positions.tolist()
    ([2, 7], [1, 2], [1, 0, 1])
    """
    if pool is None:
        ids, positions, counts = torch.unique(targets, return_inverse=True, return_counts=True)
        return Pool(ids, counts, positions)
    ids, counts = torch.unique(pool, return_counts=True)
    positions = torch.searchsorted(ids, targets).clamp_max(max(len(ids) - 1, 0))
    if len(ids) == 0 or not torch.equal(ids[positions], targets):
        raise BadInput("Every target must also be in the pool: give pool=torch.cat([targets, extra_negatives]).")
    return Pool(ids, counts, positions)
