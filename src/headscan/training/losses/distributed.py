"""Negatives from all processes: their ids, which cost nothing, for every process holds the same embedding table."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

__all__ = ["gather_ids"]


def _alone(group: dist.ProcessGroup | None) -> bool:
    return not (dist.is_available() and dist.is_initialized()) or dist.get_world_size(group) == 1


def gather_ids(ids: Tensor, group: dist.ProcessGroup | None = None) -> Tensor:
    """The ids [n] of all processes, in the order of ranks, [sum n]; processes may hold different numbers of them.

    Alone (no process group) it returns what it was given.

    >>> gather_ids(torch.tensor([3, 1])).tolist()
    [3, 1]
    """
    if _alone(group):
        return ids
    sizes = _sizes(len(ids), ids.device, group)
    padded = ids.new_zeros(max(sizes))
    padded[: len(ids)] = ids
    parts = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(parts, padded, group=group)
    return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])


def _sizes(size: int, device: torch.device, group: dist.ProcessGroup | None) -> list[int]:
    own = torch.tensor([size], device=device)
    sizes = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
    dist.all_gather(sizes, own, group=group)
    return [int(each) for each in sizes]
