"""Negatives from all processes: their ids, which costs nothing, or their rows, with the gradient that belongs to them.

Where every process holds the same embedding table (DDP), it is enough to gather *ids*: the rows are at hand, and DDP's
own mean of the gradients is then the gradient of the one large batch. Where targets are not rows of a shared table (a
sentence encoder, a sharded table), `gather_rows_with_gradient` gathers vectors and sends each its gradient back.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["gather_ids", "gather_rows_with_gradient", "global_mean"]


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


def gather_rows_with_gradient(rows: Tensor, group: dist.ProcessGroup | None = None) -> Tensor:
    """The rows [n, d] of all processes, [sum n, d]. Backward, each process gets the sum over all processes of the
    gradients to its own rows.

    >>> gather_rows_with_gradient(torch.ones(2, 3)).shape
    torch.Size([2, 3])
    """
    gathered: Tensor = rows if _alone(group) else _GatherRows.apply(rows, group)  # type: ignore[no-untyped-call]
    return gathered


def global_mean(losses: Tensor, group: dist.ProcessGroup | None = None) -> Tensor:
    """This process's share of the mean over all processes' losses, scaled so that DDP's mean of gradients is exact.

    = sum(losses) x (number of processes) / (losses of all processes). Batches of different sizes (masked positions)
    then weigh by their size. Alone it is the plain mean, and 0 for no losses.

    >>> global_mean(torch.tensor([1.0, 3.0]))
    tensor(2.)
    """
    if _alone(group):
        return losses.sum() / max(len(losses), 1)
    count = torch.tensor([len(losses)], device=losses.device)
    dist.all_reduce(count, group=group)
    return losses.sum() * dist.get_world_size(group) / count.clamp_min(1)[0]


def _sizes(size: int, device: torch.device, group: dist.ProcessGroup | None) -> list[int]:
    own = torch.tensor([size], device=device)
    sizes = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
    dist.all_gather(sizes, own, group=group)
    return [int(each) for each in sizes]


class _GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, group: dist.ProcessGroup | None) -> Tensor:
        sizes = _sizes(rows.shape[0], rows.device, group)
        padded = rows.new_zeros(max(sizes), *rows.shape[1:])
        padded[: rows.shape[0]] = rows
        parts = [torch.empty_like(padded) for _ in sizes]
        dist.all_gather(parts, padded, group=group)
        rank = dist.get_rank(group)
        ctx.group, ctx.start, ctx.size = group, sum(sizes[:rank]), rows.shape[0]
        return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:
        total = upstream.contiguous().clone()
        dist.all_reduce(total, group=ctx.group)
        return total[ctx.start : ctx.start + ctx.size], None
