"""Checks and sums that all losses share, and the pool of tokens of a contrastive loss."""

from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from headscan.run import BadInput

REDUCTIONS = ("mean", "sum", "none")


def check(hidden: Tensor, embeddings: Tensor, targets: Tensor) -> None:
    """Raise BadInput where hidden [K, d], embeddings [V, d] and targets [K] do not fit together.

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
    """Return the mean, the sum or the losses [K] themselves.

    The mean of no losses is 0, with a gradient of zeros, and not NaN.
    """
    if reduction == "none":
        return losses
    if reduction == "sum":
        return losses.sum()
    if reduction == "mean":
        return losses.sum() / max(losses.shape[0], 1)
    raise BadInput(f"reduction must be one of {', '.join(REDUCTIONS)}, not {reduction!r}.")


def no_loss(hidden: Tensor, embeddings: Tensor, reduction: str) -> Tensor:
    """Return the loss of no targets: 0 with gradients of zeros, or losses [0]."""
    if reduction == "none":
        return hidden.sum(1)
    return (hidden.sum() + 0 * embeddings[:1].sum()) * 0


def log_unigram(counts: Tensor, smoothing: float = 1.0) -> Tensor:
    """Return log p(v) [V] in nats from token counts [V], with `smoothing` added to each count so
    that no token has p = 0.

    >>> log_unigram(torch.tensor([2, 0]), smoothing=1).exp()
    tensor([0.7500, 0.2500], dtype=torch.float64)
    """
    smooth = counts.double() + smoothing
    return smooth.log() - smooth.sum().log()


def gather_ids(ids: Tensor, group: dist.ProcessGroup | None = None) -> Tensor:
    """Return the ids [n] of all processes, in the order of ranks, [sum n]; processes may hold
    different numbers of them. Without a process group these are the ids themselves.

    >>> gather_ids(torch.tensor([3, 1])).tolist()
    [3, 1]
    """
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size(group) == 1:
        return ids
    size = torch.tensor([len(ids)], device=ids.device)
    sizes = [torch.empty_like(size) for _ in range(dist.get_world_size(group))]
    dist.all_gather(sizes, size, group=group)
    counts = [int(size) for size in sizes]

    padded = ids.new_zeros(max(counts))
    padded[: len(ids)] = ids
    parts = [torch.empty_like(padded) for _ in counts]
    dist.all_gather(parts, padded, group=group)
    return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])


class Pool(NamedTuple):
    """The tokens that a contrastive loss compares with.

    ids: int64 [U], the distinct token ids, ascending.
    counts: int64 [U], how often each occurs in the pool.
    positions: int64 [K], the index in `ids` of each row's target.
    """

    ids: Tensor
    counts: Tensor
    positions: Tensor

    @property
    def log_counts(self) -> Tensor:
        """[U]: log of the counts, the bias that makes unique tokens weigh as the whole pool would.

        float64, or float32 on Apple's devices, which have no other.
        """
        on_apple = self.counts.device.type == "mps"
        return self.counts.to(torch.float32 if on_apple else torch.float64).log()


def pool_of(targets: Tensor, pool: Tensor | None = None) -> Pool:
    """Return the distinct tokens of `pool` (int64 [P], default the targets), and the index of each
    target [K] among them.

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
