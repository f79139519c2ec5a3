"""What to watch while a contrastive loss falls: numbers that mean the same at every batch size."""

from __future__ import annotations

import torch
from torch import Tensor

from headscan.training.losses.shapes import check
from headscan.training.losses.unique import pool_of

__all__ = ["floor_of", "in_batch_accuracy"]


def floor_of(targets: Tensor, pool: Tensor | None = None) -> Tensor:
    """Mean of log c_t (nats): the least that the contrastive loss can be on these targets; 0 for no targets.

    A batch in which tokens repeat has a floor above 0, and a larger batch repeats more: subtract it before comparing
    losses of different batch sizes. Cost: one sort.

    >>> floor_of(torch.tensor([4, 4, 9])).item() == 2 / 3 * torch.tensor(2.0).double().log().item()
    True
    """
    if len(targets) == 0:
        return torch.zeros((), dtype=torch.float64, device=targets.device)
    tokens = pool_of(targets, pool)
    return tokens.log_counts[tokens.positions].mean()


@torch.no_grad()
def in_batch_accuracy(
    hidden: Tensor, embeddings: Tensor, targets: Tensor, *, pool: Tensor | None = None, chunk: int = 1024
) -> Tensor:
    """Share of rows (0 to 1) whose highest score among the pool's distinct tokens is its own target; 0 for no rows.

    hidden [K, d], embeddings [V, d], targets int [K]. Scores are raw products, without the counts, so that a frequent
    token has no head start. Cost: O(K U d).

    >>> in_batch_accuracy(torch.eye(2), torch.eye(2), torch.tensor([0, 0]))
    tensor(1.)
    >>> in_batch_accuracy(torch.eye(2), torch.eye(2), torch.tensor([1, 0]))
    tensor(0.)
    """
    check(hidden, embeddings, targets)
    if len(targets) == 0:
        return torch.zeros((), device=hidden.device)
    tokens = pool_of(targets, pool)
    rows = embeddings.index_select(0, tokens.ids)
    hits = [
        (part @ rows.T.to(part.dtype)).argmax(1) == places
        for part, places in zip(hidden.split(chunk), tokens.positions.split(chunk), strict=True)
    ]
    return torch.cat(hits).float().mean()
