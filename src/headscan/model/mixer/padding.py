"""Left padding for a model whose positions are absolute slots: rows are rolled to the first slots, and back."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

__all__ = ["to_left", "to_right"]


def to_left(hidden: Float[Tensor, "B n d"], mask: Shaped[Tensor, "B n"]) -> tuple[Tensor, Int[Tensor, " B"]]:
    """Roll each row of hidden [B, n, d] so that its first token with mask != 0 comes first; and the shifts [B].

    >>> to_left(torch.tensor([[[0.0], [5.0], [6.0]]]), torch.tensor([[0, 1, 1]]))[0].flatten().tolist()
    [5.0, 6.0, 0.0]
    """
    shift = (mask != 0).int().argmax(dim=1)
    return _roll(hidden, shift), shift


def to_right(hidden: Float[Tensor, "B n d"], shift: Int[Tensor, " B"]) -> Float[Tensor, "B n d"]:
    """Undo `to_left`."""
    return _roll(hidden, -shift)


def _roll(hidden: Tensor, shift: Tensor) -> Tensor:
    size = hidden.shape[1]
    index = (torch.arange(size, device=hidden.device)[None, :] + shift[:, None]) % size
    return hidden.gather(1, index[:, :, None].expand_as(hidden))
