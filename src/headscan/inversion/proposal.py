"""A gradient's proposal for the next token: the embedding that would give the target, and the tokens nearest to it."""

from __future__ import annotations

import torch
from torch import Tensor

from headscan.inversion.decoders import spread
from headscan.model.slicing.prefix import Prefix

__all__ = ["propose"]


def propose(
    prefix: Prefix, rows: Tensor, goals: Tensor, starts: list[int | None], *, count: int, steps: int = 30
) -> list[Tensor]:
    """Tokens by the distance of their vectors to the vector that gradient descent (Adam) finds for the target.

    Args:
        prefix: the prompts so far.
        rows: [N] which prompts.
        goals: [N, w'] their targets at the next position.
        starts: the token to start from, or None for the mean of the vocabulary.
        count: how many tokens to propose.
        steps: steps of Adam, all rows in one batch.

    Returns:
        For each row token ids, nearest first.
    """
    cut = prefix.cut
    table = cut.vectors.float()
    begin = torch.stack([table.mean(0) if token is None else table[token] for token in starts])
    scale = goals.norm(dim=1, keepdim=True).clamp_min(1e-30)
    with torch.enable_grad():
        vectors = begin.clone().requires_grad_()
        optimiser = torch.optim.Adam([vectors], lr=spread(table) * 0.5)
        best, best_loss = begin.clone(), torch.full((len(rows),), float("inf"), device=begin.device)
        for _ in range(steps):
            outputs = prefix.outputs(rows, vectors.to(cut.vectors.dtype), grad=True)
            losses = (((outputs - goals) / scale) ** 2).sum(1)
            with torch.no_grad():
                better = losses < best_loss
                best[better], best_loss[better] = vectors[better], losses[better]
            (vectors.grad,) = torch.autograd.grad(losses.sum(), vectors)
            optimiser.step()
    squares = torch.cat([(rows**2).sum(1) for rows in table.split(8192)])  # without a second table in memory
    distances = squares - 2 * best.detach() @ table.T
    return list(distances.topk(min(count, len(table)), largest=False).indices)
