"""Masked mixing of tokens: triangular matrices over positions, the same for every feature.

A mixing layer maps x [B, n, d] to y [B, n, d] with

    y_i = sum_{j <= i} W_ij x_j + b_i,

one weight a pair of positions and one bias a position. The triangle is applied as a function of the
parameters, at each forward pass, never by writing into them: so it is safe under torch.compile, DDP
and any optimizer. A text of n <= L tokens uses the leading n x n part, which by causality is what
the same tokens would see in a full window.
"""

import math
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from huggingface_hub.dataclasses import strict
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn
from transformers import PreTrainedConfig

from headscan.run import BadInput

MIXINGS = ("flat", "expanded", "parallel", "heads")


def to_left(
    hidden: Float[Tensor, "B n d"], mask: Shaped[Tensor, "B n"]
) -> tuple[Tensor, Int[Tensor, " B"]]:
    """Roll each row so that its first token with mask != 0 comes first, since slots are absolute.

    Returns:
        The rolled rows, and by how much each was rolled.

    >>> rolled, shift = to_left(torch.tensor([[[0.0], [5.0], [6.0]]]), torch.tensor([[0, 1, 1]]))
    >>> rolled.flatten().tolist()
    [5.0, 6.0, 0.0]
    """
    shift = (mask != 0).int().argmax(dim=1)
    return _roll(hidden, shift), shift


def to_right(hidden: Float[Tensor, "B n d"], shift: Int[Tensor, " B"]) -> Float[Tensor, "B n d"]:
    """Undo `to_left`."""
    return _roll(hidden, -shift)


def _roll(hidden: Tensor, shift: Tensor) -> Tensor:
    size = hidden.shape[1]
    slots = torch.arange(size, device=hidden.device)
    index = (slots[None, :] + shift[:, None]) % size
    return hidden.gather(1, index[:, :, None].expand_as(hidden))


@strict
class MixerConfig(PreTrainedConfig):
    """The configuration of a masked mixer.

    Attributes:
        vocab_size, hidden_size, num_hidden_layers: as everywhere in transformers; hidden_size is d.
        max_position_embeddings: the slots L; a text of any length up to L uses the first of them.
        intermediate_size: width of the MLP, default 4 d.
        mixing: how tokens are mixed: "flat" (one triangular matrix), "expanded" (two, with
            `mixing_expansion` hidden units a position and a GELU between), "parallel"
            (`mixing_branches` matrices, summed), "heads" (`mixing_heads` projections of width
            `mixing_head_width`, one matrix each).
        kernel_size: taps of the mixing along the features; 1 is a plain matrix ("flat" and
            "parallel" only).
        as_published: whether to mask as the published code does: the lower triangle of the
            *flattened* weight. It leaks nothing, but for expansion > 1 half of the hidden units are
            never used, and for kernel_size k position i sees only the positions up to i / k.
        bidirectional: whether there is a second stream that sees what lies two and more positions
            ahead (for `MixerForBidirectionalLM`).
        final_norm: whether there is a LayerNorm before the head (the published have none).
        embedding_std: of the initial embeddings; 1 as published (transformers use 0.02).

    >>> MixerConfig(hidden_size=64, num_hidden_layers=2).intermediate_size
    256
    """

    model_type = "headscan_mixer"
    keys_to_ignore_at_inference: ClassVar[list[str]] = []

    vocab_size: int = 4096
    hidden_size: int = 512
    num_hidden_layers: int = 8
    max_position_embeddings: int = 512
    intermediate_size: int | None = None
    mixing: str = "flat"
    mixing_expansion: int = 2
    mixing_branches: int = 2
    mixing_heads: int = 4
    mixing_head_width: int | None = None
    kernel_size: int = 1
    as_published: bool = False
    bidirectional: bool = False
    final_norm: bool = False
    embedding_std: float = 1.0
    layer_norm_eps: float = 1e-5
    tie_word_embeddings: bool = False
    use_cache: bool = False
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    pad_token_id: int | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        if self.mixing not in MIXINGS:
            raise BadInput(f"The mixing must be one of {', '.join(MIXINGS)}, not {self.mixing!r}.")
        takes_kernel = self.mixing in ("flat", "parallel")
        if self.kernel_size < 1 or (self.kernel_size > 1 and not takes_kernel):
            raise BadInput(
                f"A kernel of {self.kernel_size} taps does not go with the mixing {self.mixing!r}."
            )
        counts = (
            self.mixing_expansion,
            self.mixing_branches,
            self.mixing_heads,
            self.max_position_embeddings,
        )
        if min(counts) < 1:
            raise BadInput(
                "Expansion, branches, heads and the number of slots of a mixer must all be at "
                "least 1."
            )
        if self.intermediate_size is None:
            self.intermediate_size = 4 * self.hidden_size
        if self.mixing_head_width is None:
            self.mixing_head_width = max(1, self.hidden_size // self.mixing_heads)
        super().__post_init__(**kwargs)  # type: ignore[no-untyped-call]


class MaskedMixing(nn.Module):
    """One triangular matrix over L slots, with `kernel` taps along the features.

    Args:
        direction: "past": position i sees j <= i. "future": it sees j >= i + 2, that is neither
            itself nor the token that it has to predict (the residual stream around the layer still
            carries token i).
        flattened: whether to use the published mask for kernel > 1, the lower triangle of the
            [L, L x kernel] matrix.

    >>> layer = MaskedMixing(4)
    >>> layer.triangle(3).int().squeeze(-1)
    tensor([[1, 0, 0],
            [1, 1, 0],
            [1, 1, 1]], dtype=torch.int32)
    """

    def __init__(
        self, slots: int, kernel: int = 1, direction: str = "past", flattened: bool = False
    ):
        super().__init__()
        self.kernel = kernel
        self.direction = direction
        self.flattened = flattened
        # zeros beside the features, so that there are d again
        self.margins = ((kernel - 1) // 2, kernel // 2)
        self.weight = nn.Parameter(torch.empty(slots, slots, kernel))
        self.bias = nn.Parameter(torch.empty(slots))
        self.reset()

    def reset(self) -> None:
        """Draw weights uniformly in +-1/sqrt(slots x kernel), as published.

        This is torch's default for a convolution of this shape.
        """
        uniform(self.weight, self.bias, fan_in=self.weight.shape[1] * self.kernel)

    def triangle(self, size: int) -> Tensor:
        """Return which weights count, as bool [size, size, kernel]."""
        row = torch.arange(size, device=self.weight.device)[:, None, None]
        column = torch.arange(size, device=self.weight.device)[None, :, None]
        tap = torch.arange(self.kernel, device=self.weight.device)
        if self.direction == "future":
            return (column >= row + 2).expand(size, size, self.kernel)
        if self.flattened:
            return column * self.kernel + tap <= row
        return (column <= row).expand(size, size, self.kernel)

    def forward(self, x: Float[Tensor, "B n d"]) -> Float[Tensor, "B n d"]:
        """Return the mixed states; n is at most the number of slots. Cost: O(B n^2 d kernel)."""
        size = x.shape[1]
        weight = self.weight[:size, :size] * self.triangle(size)
        if self.kernel == 1:
            return weight.squeeze(-1) @ x + self.bias[:size, None]
        return F.conv1d(F.pad(x, self.margins), weight, self.bias[:size])


class ParallelMixing(nn.Module):
    """Several masked mixings of the same input, summed.

    With one tap each this is, as a function, one mixing whose matrix is the sum: it differs in how
    it is initialised and trained, not in what it can express.
    """

    def __init__(
        self,
        slots: int,
        branches: int,
        kernel: int = 1,
        direction: str = "past",
        flattened: bool = False,
    ):
        super().__init__()
        self.branches = nn.ModuleList(
            MaskedMixing(slots, kernel, direction, flattened) for _ in range(branches)
        )

    def forward(self, x: Float[Tensor, "B n d"]) -> Float[Tensor, "B n d"]:
        return torch.stack([branch(x) for branch in self.branches]).sum(0)


class ExpandedMixing(nn.Module):
    """Two masked mixings with a GELU between: `expansion` hidden units a position.

    Done right, hidden unit (r, k) belongs to position r: it sees j <= r and is seen by i >= r. As
    published (`flattened`), the f L units are numbered through and the lower triangles of the two
    matrices are used: unit r is seen by position i only if r <= i < L, so units L ... f L - 1 serve
    no position and f = 2 equals f = 1.
    """

    def __init__(
        self, slots: int, expansion: int, direction: str = "past", flattened: bool = False
    ):
        super().__init__()
        self.slots = slots
        self.flattened = flattened
        self.inward = nn.ModuleList(MaskedMixing(slots, 1, direction) for _ in range(expansion))
        self.outward = nn.ModuleList(MaskedMixing(slots, 1, direction) for _ in range(expansion))

    def forward(self, x: Float[Tensor, "B n d"]) -> Float[Tensor, "B n d"]:
        """Return the mixed states. Cost: 2 x expansion mixings."""
        pairs = list(zip(self.inward, self.outward, strict=True))
        if self.flattened:
            pairs = pairs[:1]
        mixed = [outward(F.gelu(inward(x))) for inward, outward in pairs]
        return torch.stack(mixed).sum(0)


class HeadMixing(nn.Module):
    """Several heads: projections of the features, a masked mixing in each, joined and projected."""

    def __init__(
        self, slots: int, width: int, heads: int, head_width: int, direction: str = "past"
    ):
        super().__init__()
        self.heads = heads
        self.project_in = nn.Linear(width, heads * head_width)
        self.mixings = nn.ModuleList(MaskedMixing(slots, 1, direction) for _ in range(heads))
        self.project_out = nn.Linear(heads * head_width, width)

    def forward(self, x: Float[Tensor, "B n d"]) -> Float[Tensor, "B n d"]:
        heads = self.project_in(x).chunk(self.heads, dim=-1)
        mixed = [mixing(head) for mixing, head in zip(self.mixings, heads, strict=True)]
        output: Tensor = self.project_out(torch.cat(mixed, dim=-1))
        return output


def mixing_of(config: MixerConfig, direction: str = "past") -> nn.Module:
    """Return the mixing layer that a configuration describes."""
    slots = config.max_position_embeddings
    published = config.as_published
    if config.mixing == "expanded":
        return ExpandedMixing(slots, config.mixing_expansion, direction, published)
    if config.mixing == "parallel":
        return ParallelMixing(
            slots, config.mixing_branches, config.kernel_size, direction, published
        )
    if config.mixing == "heads" and config.mixing_head_width is not None:
        return HeadMixing(
            slots, config.hidden_size, config.mixing_heads, config.mixing_head_width, direction
        )
    return MaskedMixing(slots, config.kernel_size, direction, published)


def uniform(*parameters: Tensor, fan_in: int) -> None:
    """Fill parameters uniformly in +-1/sqrt(fan_in), unless a checkpoint has filled them."""
    bound = 1 / math.sqrt(fan_in)
    for parameter in parameters:
        if not getattr(parameter, "_is_hf_initialized", False):
            with torch.no_grad():
                parameter.uniform_(-bound, bound)
