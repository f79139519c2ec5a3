"""What every objective demands of its arguments, checked in one place."""

from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from headscan.run import BadInput

REDUCTIONS = ("mean", "sum", "none")


def check(hidden: Tensor, embeddings: Tensor, targets: Tensor) -> None:
    """Raise BadInput, in one sentence, where hidden [K, d], embeddings [V, d] and targets [K] do
    not fit together.

    Cost: one pass over the targets (and one wait for the device, as the unique tokens need one
        anyway).
    """
    if hidden.dim() != 2 or embeddings.dim() != 2 or targets.dim() != 1:
        raise BadInput(
            "The loss wants hidden [K, d], embeddings [V, d] and targets [K], but was given "
            f"{list(hidden.shape)}, {list(embeddings.shape)} and {list(targets.shape)}."
        )
    if hidden.shape[1] != embeddings.shape[1]:
        raise BadInput(
            f"The hidden states have width {hidden.shape[1]} but the embeddings "
            f"{embeddings.shape[1]}."
        )
    if hidden.shape[0] != targets.shape[0]:
        raise BadInput(f"There are {hidden.shape[0]} hidden states but {targets.shape[0]} targets.")
    if targets.dtype not in (torch.int64, torch.int32):
        raise BadInput(f"The targets must be integers (token ids), not {targets.dtype}.")
    if len(targets) and not (int(targets.min()) >= 0 and int(targets.max()) < embeddings.shape[0]):
        raise BadInput(
            f"A target lies outside the vocabulary of {embeddings.shape[0]} tokens: ids run from "
            f"{int(targets.min())} to {int(targets.max())}. Does the tokenizer belong to this "
            "model?"
        )


def reduce(losses: Tensor, reduction: str) -> Tensor:
    """Mean, sum or the losses [K] themselves. The mean of no losses is 0, with a gradient of zeros,
    and not NaN.
    """
    if reduction == "none":
        return losses
    if reduction == "sum":
        return losses.sum()
    if reduction == "mean":
        return losses.sum() / max(losses.shape[0], 1)
    raise BadInput(f"reduction must be one of {', '.join(REDUCTIONS)}, not {reduction!r}.")


def log_unigram(counts: Tensor, smoothing: float = 1.0) -> Tensor:
    """log p(v) [V] in nats from token counts [V], with `smoothing` added to each count so that no
    token has p = 0.

    >>> log_unigram(torch.tensor([2, 0]), smoothing=1).exp()
    tensor([0.7500, 0.2500], dtype=torch.float64)
    """
    smooth = counts.double() + smoothing
    return smooth.log() - smooth.sum().log()


def gather_ids(ids: Tensor, group: dist.ProcessGroup | None = None) -> Tensor:
    """The ids [n] of all processes, in the order of ranks, [sum n]; processes may hold different
    numbers of them.

    Alone (no process group) it returns what it was given.

    >>> gather_ids(torch.tensor([3, 1])).tolist()
    [3, 1]
    """
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size(group) == 1:
        return ids
    own = torch.tensor([len(ids)], device=ids.device)
    sizes = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
    dist.all_gather(sizes, own, group=group)
    padded = ids.new_zeros(max(int(size) for size in sizes))
    padded[: len(ids)] = ids
    parts = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(parts, padded, group=group)
    return torch.cat([part[: int(size)] for part, size in zip(parts, sizes, strict=True)])


class Pool(NamedTuple):
    """The tokens that a contrastive loss compares against.

    ids: int64 [U], the distinct token ids, ascending. counts: int64 [U], how often each occurs in
        the pool.
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
        return self.counts.to(
            torch.float32 if self.counts.device.type == "mps" else torch.float64
        ).log()


def pool_of(targets: Tensor, pool: Tensor | None = None) -> Pool:
    """Distinct tokens of `pool` (int64 [P], default the targets themselves), and where each target
    [K] is among them.

    Cost: one sort of P integers. Raises BadInput when a target is missing from the pool, because
    then the loss would have no positive.

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
        raise BadInput(
            "Every target must also be in the pool: give pool=torch.cat([targets, "
            "extra_negatives])."
        )
    return Pool(ids, counts, positions)
