"""What may happen to states before they leak: noise, rounding."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["add_noise", "round_states"]


def add_noise(states: Float[Tensor, "*batch w"], share: float, seed: int = 0) -> Float[Tensor, "*batch w"]:
    """Gaussian noise whose expected norm is `share` of each state's norm.

    >>> states = torch.ones(1, 2, 4096)
    >>> bool(((add_noise(states, 0.1) - states).norm(dim=-1) / states.norm(dim=-1) - 0.1).abs().max() < 0.01)
    True
    """
    noise = torch.randn(states.shape, generator=torch.Generator().manual_seed(seed)).to(states.device)
    blurred: Tensor = (
        states.float() + share * noise * states.float().norm(dim=-1, keepdim=True) / states.shape[-1] ** 0.5
    )
    return blurred


def round_states(states: Float[Tensor, "*batch w"], bits: int) -> Float[Tensor, "*batch w"]:
    """Each state rounded to 2^bits - 1 levels between minus and plus its largest entry.

    >>> round_states(torch.tensor([[[1.0, 0.4, -0.6]]]), 2)
    tensor([[[ 1.,  0., -1.]]])
    """
    levels = 2 ** (bits - 1) - 1
    scale = states.float().abs().amax(-1, keepdim=True).clamp_min(1e-30) / levels
    rounded: Tensor = (states.float() / scale).round() * scale
    return rounded
