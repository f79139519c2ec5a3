"""What every objective demands of its arguments, checked in one place."""

from __future__ import annotations

import torch
from torch import Tensor

from headscan.run import BadInput

__all__ = ["REDUCTIONS", "check", "reduce"]

REDUCTIONS = ("mean", "sum", "none")


def check(hidden: Tensor, embeddings: Tensor, targets: Tensor) -> None:
    """Raise BadInput, in one sentence, where hidden [K, d], embeddings [V, d] and targets [K] do not fit together.

    Cost: one pass over the targets (and one wait for the device, as the unique tokens need one anyway).
    """
    if hidden.dim() != 2 or embeddings.dim() != 2 or targets.dim() != 1:
        raise BadInput(
            "The loss wants hidden [K, d], embeddings [V, d] and targets [K], "
            f"but was given {list(hidden.shape)}, {list(embeddings.shape)} and {list(targets.shape)}."
        )
    if hidden.shape[1] != embeddings.shape[1]:
        raise BadInput(f"The hidden states have width {hidden.shape[1]} but the embeddings {embeddings.shape[1]}.")
    if hidden.shape[0] != targets.shape[0]:
        raise BadInput(f"There are {hidden.shape[0]} hidden states but {targets.shape[0]} targets.")
    if targets.dtype not in (torch.int64, torch.int32):
        raise BadInput(f"The targets must be integers (token ids), not {targets.dtype}.")
    if len(targets) and not (int(targets.min()) >= 0 and int(targets.max()) < embeddings.shape[0]):
        raise BadInput(
            f"A target lies outside the vocabulary of {embeddings.shape[0]} tokens: "
            f"ids run from {int(targets.min())} to {int(targets.max())}. Does the tokenizer belong to this model?"
        )


def reduce(losses: Tensor, reduction: str) -> Tensor:
    """Mean, sum or the losses [K] themselves. The mean of no losses is 0, with a gradient of zeros, and not NaN."""
    if reduction == "none":
        return losses
    if reduction == "sum":
        return losses.sum()
    if reduction == "mean":
        return losses.sum() / max(losses.shape[0], 1)
    raise BadInput(f"reduction must be one of {', '.join(REDUCTIONS)}, not {reduction!r}.")
