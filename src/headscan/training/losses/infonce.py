"""InfoNCE: a query finds its own candidate among those of the batch (retrieval)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from headscan.run import BadInput

__all__ = ["infonce_loss"]


def infonce_loss(
    queries: Tensor, candidates: Tensor, *, temperature: float = 0.02, first: int = 0, both_ways: bool = False
) -> Tensor:
    """Mean of -log softmax_j(cos(q_i, c_j) / T) at j = first + i (nats): queries [N, d], candidates [M, d], M >= first + N.

    Row i of the queries belongs to candidate first + i; all others are negatives (hard negatives may follow). both_ways:
    the mean with the loss of candidates looking for queries (N = M, first = 0). T = 0.02 as in the masked-mixer papers.

    >>> round(infonce_loss(torch.eye(2), torch.eye(2), temperature=1.0).item(), 4)
    0.3133
    """
    if queries.dim() != 2 or candidates.dim() != 2 or queries.shape[1] != candidates.shape[1]:
        raise BadInput(f"Queries {list(queries.shape)} and candidates {list(candidates.shape)} do not fit together.")
    if first + len(queries) > len(candidates):
        raise BadInput(
            f"{len(queries)} queries need at least {first + len(queries)} candidates, not {len(candidates)}."
        )
    if not temperature > 0:
        raise BadInput(f"temperature must be above 0, not {temperature}.")
    scores = F.normalize(queries, dim=1) @ F.normalize(candidates, dim=1).T / temperature
    own = first + torch.arange(len(queries), device=queries.device)
    loss = F.cross_entropy(scores.float() if scores.dtype in (torch.bfloat16, torch.float16) else scores, own)
    if not both_ways:
        return loss
    if first or len(queries) != len(candidates):
        raise BadInput("Both ways need as many candidates as queries.")
    return (loss + F.cross_entropy(scores.T, own)) / 2
