"""Distances between outputs that continuous inversion makes small."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

__all__ = ["Loss", "loss_of", "or_infinite", "relative"]

Loss = Literal["l1", "l2", "cosine", "linear"]


def loss_of(
    name: Loss,
    outputs: Float[Tensor, "B kept w"],
    targets: Float[Tensor, "B kept w"],
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
) -> Float[Tensor, " B"]:
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
    return alpha * cosine + beta * difference.abs().sum(1)


def relative(outputs: Float[Tensor, "*batch w"], targets: Float[Tensor, "*batch w"]) -> Float[Tensor, "*batch"]:
    """||O - O*|| / ||O*|| of each position, [B, T']; infinite where it is no number, so that NaN is near nothing.

    >>> import torch
    >>> relative(torch.tensor([[[1.0, 2.0], [1.0, 1.0]]]), torch.tensor([[[1.0, 1.0], [1.0, float("nan")]]]))
    tensor([[0.7071,    inf]])
    """
    targets = targets.float()
    # Scaled by a power of two, which is exact, so that squares neither overflow nor vanish.
    _, exponent = targets.abs().amax(-1, keepdim=True).nan_to_num(posinf=1.0).frexp()
    scale = torch.ldexp(torch.ones_like(targets[..., :1]), -exponent.clamp(-126, 126))
    difference = ((outputs.float() - targets) * scale).norm(dim=-1)
    return or_infinite(difference / (targets * scale).norm(dim=-1).clamp_min(1e-30))


def or_infinite(residuals: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """Residuals with NaN as infinity."""
    infinite = float("inf")
    return residuals.nan_to_num(nan=infinite, posinf=infinite, neginf=-infinite)
