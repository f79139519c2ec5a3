"""Masked mixing of tokens: triangular matrices over positions, the same for every feature.

A mixing layer maps x [B, n, d] to y [B, n, d] with

    y_i = sum_{j <= i} W_ij x_j + b_i,

one weight a pair of positions and one bias a position. The triangle is applied as a function of the parameters, at
each forward pass, never by writing into them: so it is safe under torch.compile, DDP and any optimizer. A text of
n <= L tokens uses the leading n x n part, which by causality is what the same tokens would see in a full window.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from headscan.model.mixer.configuration import MixerConfig

__all__ = ["ExpandedMixing", "HeadMixing", "MaskedMixing", "ParallelMixing", "mixing_of"]


class MaskedMixing(nn.Module):
    """One triangular matrix over L slots, with `kernel` taps along the features.

    direction "past": position i sees j <= i. "future": it sees j >= i + 2, that is neither itself nor the token that it
    has to predict (the residual stream around the layer still carries token i).
    flattened: the published mask for kernel > 1, the lower triangle of the [L, L x kernel] matrix.

    >>> layer = MaskedMixing(4)
    >>> layer.triangle(3).int().squeeze(-1)
    tensor([[1, 0, 0],
            [1, 1, 0],
            [1, 1, 1]], dtype=torch.int32)
    """

    def __init__(self, slots: int, kernel: int = 1, direction: str = "past", flattened: bool = False):
        super().__init__()
        self.kernel, self.direction, self.flattened = kernel, direction, flattened
        self.margins = ((kernel - 1) // 2, kernel // 2)  # zeros beside the features, so that there are d again
        self.weight = nn.Parameter(torch.empty(slots, slots, kernel))
        self.bias = nn.Parameter(torch.empty(slots))
        self.reset()

    def reset(self) -> None:
        """Uniform in +-1/sqrt(slots x kernel), torch's default for a convolution of this shape, as published."""
        uniform(self.weight, self.bias, fan_in=self.weight.shape[1] * self.kernel)

    def triangle(self, size: int) -> Tensor:
        """bool [size, size, kernel]: which weights count."""
        row = torch.arange(size, device=self.weight.device)[:, None, None]
        column = torch.arange(size, device=self.weight.device)[None, :, None]
        tap = torch.arange(self.kernel, device=self.weight.device)
        if self.direction == "future":
            return (column >= row + 2).expand(size, size, self.kernel)
        if self.flattened:
            return column * self.kernel + tap <= row
        return (column <= row).expand(size, size, self.kernel)

    def forward(self, x: Float[Tensor, "B n d"]) -> Float[Tensor, "B n d"]:
        """[B, n, d] to [B, n, d], n at most the number of slots. Cost: O(B n^2 d kernel)."""
        size = x.shape[1]
        weight = self.weight[:size, :size] * self.triangle(size)
        if self.kernel == 1:
            return weight.squeeze(-1) @ x + self.bias[:size, None]
        return F.conv1d(F.pad(x, self.margins), weight, self.bias[:size])


class ParallelMixing(nn.Module):
    """Several masked mixings of the same input, summed. With one tap each this is, as a function, one mixing whose
    matrix is the sum: it differs in how it is initialised and trained, not in what it can express."""

    def __init__(self, slots: int, branches: int, kernel: int = 1, direction: str = "past", flattened: bool = False):
        super().__init__()
        self.branches = nn.ModuleList(MaskedMixing(slots, kernel, direction, flattened) for _ in range(branches))

    def forward(self, x: Float[Tensor, "B n d"]) -> Float[Tensor, "B n d"]:
        """[B, n, d] to [B, n, d]."""
        return torch.stack([branch(x) for branch in self.branches]).sum(0)


class ExpandedMixing(nn.Module):
    """Two masked mixings with a GELU between: `expansion` hidden units a position.

    Done right, hidden unit (r, k) belongs to position r: it sees j <= r and is seen by i >= r. As published
    (`flattened`), the f L units are numbered through and the lower triangles of the two matrices are kept: unit r
    is seen by position i only if r <= i < L, so units L ... f L - 1 serve nobody and f = 2 equals f = 1.
    """

    def __init__(self, slots: int, expansion: int, direction: str = "past", flattened: bool = False):
        super().__init__()
        self.slots, self.flattened = slots, flattened
        self.inward = nn.ModuleList(MaskedMixing(slots, 1, direction) for _ in range(expansion))
        self.outward = nn.ModuleList(MaskedMixing(slots, 1, direction) for _ in range(expansion))

    def forward(self, x: Float[Tensor, "B n d"]) -> Float[Tensor, "B n d"]:
        """[B, n, d] to [B, n, d]. Cost: 2 x expansion mixings."""
        pairs = list(zip(self.inward, self.outward, strict=True))
        if self.flattened:
            pairs = pairs[:1]
        return torch.stack([outward(F.gelu(inward(x))) for inward, outward in pairs]).sum(0)


class HeadMixing(nn.Module):
    """Several heads: a projection of the features, a masked mixing in it, all joined and projected back."""

    def __init__(self, slots: int, width: int, heads: int, head_width: int, direction: str = "past"):
        super().__init__()
        self.heads = heads
        self.project_in = nn.Linear(width, heads * head_width)
        self.mixings = nn.ModuleList(MaskedMixing(slots, 1, direction) for _ in range(heads))
        self.project_out = nn.Linear(heads * head_width, width)

    def forward(self, x: Float[Tensor, "B n d"]) -> Float[Tensor, "B n d"]:
        """[B, n, d] to [B, n, d]."""
        parts = self.project_in(x).chunk(self.heads, dim=-1)
        mixed = torch.cat([mixing(part) for mixing, part in zip(self.mixings, parts, strict=True)], dim=-1)
        found: Tensor = self.project_out(mixed)
        return found


def mixing_of(config: MixerConfig, direction: str = "past") -> nn.Module:
    """The mixing layer that a `MixerConfig` describes."""
    slots, published = config.max_position_embeddings, config.as_published
    if config.mixing == "expanded":
        return ExpandedMixing(slots, config.mixing_expansion, direction, published)
    if config.mixing == "parallel":
        return ParallelMixing(slots, config.mixing_branches, config.kernel_size, direction, published)
    if config.mixing == "heads" and config.mixing_head_width is not None:
        return HeadMixing(slots, config.hidden_size, config.mixing_heads, config.mixing_head_width, direction)
    return MaskedMixing(slots, config.kernel_size, direction, published)


def uniform(*parameters: Tensor, fan_in: int) -> None:
    """Fill parameters uniformly in +-1/sqrt(fan_in), unless a checkpoint has already filled them."""
    bound = 1 / math.sqrt(fan_in)
    for parameter in parameters:
        if not getattr(parameter, "_is_hf_initialized", False):
            with torch.no_grad():
                parameter.uniform_(-bound, bound)
