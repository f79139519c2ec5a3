"""Distances between outputs that continuous inversion makes small."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from headscan.errors import BadInput

__all__ = ["LOSSES", "loss_of", "relative"]

LOSSES = ("l1", "l2", "cosine", "linear")


def loss_of(name: str, outputs: Tensor, targets: Tensor, *, alpha: float = 1.0, beta: float = 1.0) -> Tensor:
    """One number a row, [B], for outputs and targets [B, T', w'].

    "l1": sum of absolute differences. "l2": sum of squares. "cosine": 1 - cos of the *flattened* outputs, as published
    (positions of large norm count most). "linear": alpha * cosine + beta * l1.

    >>> import torch
    >>> loss_of("cosine", torch.ones(1, 2, 3), 2 * torch.ones(1, 2, 3)).abs() < 1e-6
    tensor([True])
    """
    difference = (outputs - targets).flatten(1)
    if name == "l1":
        return difference.abs().sum(1)
    if name == "l2":
        return (difference**2).sum(1)
    cosine = 1 - F.cosine_similarity(outputs.flatten(1), targets.flatten(1))
    if name == "cosine":
        return cosine
    if name == "linear":
        return alpha * cosine + beta * difference.abs().sum(1)
    raise BadInput(f"There is no loss '{name}'; choose one of {', '.join(LOSSES)}.")


def relative(outputs: Tensor, targets: Tensor) -> Tensor:
    """||O - O*|| / ||O*|| of each position, [B, T']."""
    return (outputs.float() - targets.float()).norm(dim=-1) / targets.float().norm(dim=-1).clamp_min(1e-30)
