"""The model in training as the families of the monitor see it, and the store for their tensors."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headscan.model import Lens

BUCKETS = 2**16
"""Pairs of tokens are counted by a hash into so many buckets."""


class Store:
    """The tensors that a family takes from a step, by name, on their device.

    Of several micro-batches the largest value or the mean counts; `local` is of this process alone.
    """

    def __init__(self) -> None:
        self.largest: dict[str, Tensor] = {}
        self.sums: dict[str, Tensor] = {}
        self.counts: dict[str, int] = {}
        self.local: dict[str, Tensor] = {}

    def most(self, name: str, value: Tensor) -> None:
        """Store the larger one of the stored value and this, entry by entry; NaN stays."""
        value = value.detach().float()
        if name in self.largest:
            value = torch.maximum(self.largest[name], value)
        self.largest[name] = value

    def mean(self, name: str, value: Tensor) -> None:
        """Add to a mean."""
        value = value.detach().float()
        self.sums[name] = self.sums[name] + value if name in self.sums else value
        self.counts[name] = self.counts.get(name, 0) + 1


@dataclass(frozen=True)
class ReadWindows:
    """The windows of one forward pass.

    Attributes:
        step: in which it was.
        ids: their token ids, on the device.
        real: which tokens are no padding; None: all of them.
    """

    step: int
    ids: Int[Tensor, "windows T"]
    real: Bool[Tensor, "windows T"] | None

    @property
    def kind(self) -> tuple[torch.Size, bool]:
        """The shape, and whether there is padding: windows of one kind are hashed together."""
        return self.ids.shape, self.real is None


def _no_counts() -> Tensor:
    return torch.zeros(BUCKETS, dtype=torch.long)


@dataclass
class Scene:
    """The model in training as the families see it: its blocks, routers and matrices, and what the
    families remember.

    Attributes:
        held, copies: tensors of the step under way.
        pending: windows since the last reading that are not hashed yet.
        read: the other windows since the last reading, hashed, on the device.
        seen: the step at which each window was read last, by its hash.
        horizon: steps within which a window that comes back is repeated.
        counts: counts of token pairs.
        masks: the attention masks [B, T] of the forward pass under way, of the encoder (or only
            tower) and of the decoder.
        groups: the weights of each parameter group of the optimizer, where it is known.
        scaled: a gradient scaler is in use, which leaves out steps whose gradients are infinite.
    """

    lens: Lens
    held: dict[str, Tensor] = field(default_factory=dict)
    copies: dict[str, Tensor] = field(default_factory=dict)
    pending: list[ReadWindows] = field(default_factory=list)
    read: list[Tensor] = field(default_factory=list)
    seen: dict[int, int] = field(default_factory=dict)
    horizon: float = 100.0
    counts: Int[Tensor, " buckets"] = field(default_factory=_no_counts)
    masks: dict[str, Tensor] = field(default_factory=dict)
    groups: list[list[Tensor]] = field(default_factory=list)
    scaled: bool = False

    def __post_init__(self) -> None:
        self.blocks = {}
        for stack in self.lens.stacks:
            for number, block in enumerate(stack.blocks):
                self.blocks[f"{stack.prefix}block.{number}"] = block
        self.owner = {
            id(part): name for name, block in self.blocks.items() for part in block.modules()
        }
        self.routers = {}
        for module in self.lens.model.modules():
            is_router = re.search(r"Router|Gate$", type(module).__name__)
            if is_router and id(module) in self.owner:
                self.routers[self.owner[id(module)]] = module

    @property
    def matrices(self) -> dict[str, Tensor]:
        """The matrices of weights as they are now: fully_shard puts others in their place."""
        named = self.lens.model.named_parameters()
        return {
            name: weight for name, weight in named if weight.ndim > 1 and weight.is_floating_point()
        }

    @property
    def block_of(self) -> dict[int, str]:
        """The block that each weight belongs to, by the weight's id."""
        return {
            id(weight): name for name, block in self.blocks.items() for weight in block.parameters()
        }

    def know(self, optimizer: torch.optim.Optimizer) -> None:
        """Store the parameter groups of the optimizer that is about to step."""
        self.groups = [list(group["params"]) for group in optimizer.param_groups]

    def enter(self, arguments: Mapping[str, Any]) -> None:
        """Store the attention masks of a forward pass that begins with these arguments."""
        self.masks = {}
        for tower, name in (("encoder", "attention_mask"), ("decoder", "decoder_attention_mask")):
            mask = arguments.get(name)
            if isinstance(mask, Tensor) and mask.ndim == 2:
                self.masks[tower] = mask.bool()

    def mask_of(self, site: str) -> Tensor | None:
        """Return the mask [B, T] of a site's tower in the forward pass under way."""
        return self.masks.get("decoder" if site.startswith("decoder.") else "encoder")

    def real(self, site: str, shape: Sequence[int]) -> Bool[Tensor, "B T"] | None:
        """Return which tokens [B, T] of a site are no padding; None where the forward pass has no
        mask of this shape.
        """
        mask = self.mask_of(site)
        return mask if mask is not None and mask.shape == tuple(shape) else None


def mean_of(values: Tensor, counted: Tensor | None) -> Float[Tensor, ""]:
    """Return the mean of the values that are counted (a mask that broadcasts to them; None: all of
    them), 0 without any.
    """
    if counted is None:
        return values.mean()
    counted = counted.expand_as(values)
    return torch.where(counted, values, 0.0).sum() / counted.sum().clamp(min=1)
