"""What the families of the monitor see of a training step, and where they leave tensors of it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headscan.model import Lens

CELLS = 2**22  # attention scores held at a time
# in which pairs of tokens are counted, by a hash; what one that was never read counts as
BUCKETS = 2**16
UNSEEN = 0.01


class Store:
    """What a family leaves of a step: tensors on the device, by name; of several micro-batches the
    largest or the mean.
    """

    def __init__(self) -> None:
        self.largest: dict[str, Tensor] = {}
        self.sums: dict[str, Tensor] = {}
        self.counts: dict[str, int] = {}
        self.local: dict[str, Tensor] = {}  # of this process alone

    def most(self, name: str, value: Tensor) -> None:
        """Keep the larger one, entry by entry; NaN stays."""
        value = value.detach().float()
        self.largest[name] = (
            torch.maximum(self.largest[name], value) if name in self.largest else value
        )

    def mean(self, name: str, value: Tensor) -> None:
        """Add to a mean."""
        value = value.detach().float()
        self.sums[name] = self.sums[name] + value if name in self.sums else value
        self.counts[name] = self.counts.get(name, 0) + 1


@dataclass
class Scene:
    """The model in training as the families see it: its blocks, routers and matrices, and what they
    remember.

    held, copies: tensors of the step under way. read: windows since the last look, on the device.
    seen: windows, by their hash, with the step at which they were read last; one that comes back
    within `horizon` steps is repeated. counts: token pairs.
    masks: the attention masks [B, T] of the forward pass under way, of the encoder (or only tower)
    and of the decoder. scaled: a gradient scaler is in use, which leaves out steps whose gradients
    are infinite.
    """

    lens: Lens
    held: dict[str, Tensor] = field(default_factory=dict)
    copies: dict[str, Tensor] = field(default_factory=dict)
    read: list[Tensor] = field(default_factory=list)
    seen: dict[int, int] = field(default_factory=dict)
    horizon: float = 100.0
    counts: Int[Tensor, " buckets"] = field(
        default_factory=lambda: torch.zeros(BUCKETS, dtype=torch.long)
    )
    masks: dict[str, Tensor] = field(default_factory=dict)
    scaled: bool = False

    def __post_init__(self) -> None:
        stacks = [
            (stack.prefix, block) for stack in self.lens.stacks for block in enumerate(stack.blocks)
        ]
        self.blocks = {f"{prefix}block.{number}": block for prefix, (number, block) in stacks}
        self.owner = {
            id(part): name for name, block in self.blocks.items() for part in block.modules()
        }
        routers = [
            part
            for part in self.lens.model.modules()
            if re.search(r"Router|Gate$", type(part).__name__)
        ]
        self.routers = {self.owner[id(part)]: part for part in routers if id(part) in self.owner}

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

    def enter(self, arguments: Mapping[str, Any]) -> None:
        """Take up the attention masks of a forward pass that begins with these arguments."""
        self.masks = {}
        for tower, name in (("encoder", "attention_mask"), ("decoder", "decoder_attention_mask")):
            mask = arguments.get(name)
            if isinstance(mask, Tensor) and mask.ndim == 2:
                self.masks[tower] = mask.bool()

    def real(self, site: str, shape: Sequence[int]) -> Bool[Tensor, "B T"] | None:
        """Which tokens [B, T] of a site are no padding; None where the forward pass has no mask of
        this shape.
        """
        mask = self.masks.get("decoder" if site.startswith("decoder.") else "encoder")
        return mask if mask is not None and mask.shape == tuple(shape) else None


def mean_of(values: Tensor, counted: Tensor | None) -> Float[Tensor, ""]:
    """Return the mean of the values that are counted (a mask that broadcasts to them; None: all of
    them), 0 without any.
    """
    if counted is None:
        return values.mean()
    counted = counted.expand_as(values)
    return torch.where(counted, values, 0.0).sum() / counted.sum().clamp(min=1)


class AttentionCall(NamedTuple):
    """What the first window's scores of an attention call say: by head the largest logit, and the
    mean entropy over that of uniform weights; by position the mean weight on it, over heads and the
    queries that see it, and their number. And the mean norms of queries, keys and values.
    """

    maximum: Float[Tensor, " H"]
    entropy: Float[Tensor, " H"]
    received: Float[Tensor, " T"]
    seen: Float[Tensor, " T"]
    norms: dict[str, Tensor]


def look_at(
    query: Float[Tensor, "B H T e"],
    key: Float[Tensor, "B K T e"],
    value: Float[Tensor, "B K T e"],
    mask: Tensor | None,
    scaling: float | None,
    causal: bool,
    real: Bool[Tensor, " T"] | None = None,
) -> AttentionCall:
    """Of one attention call (K divides H), in pieces, so that no T x T matrix is held. real: which
    tokens are no padding.
    """
    q, k, v = (each[:1].detach().float() for each in (query, key, value))
    named = (("query", q), ("key", k), ("value", v))
    norms = {name: mean_of(torch.linalg.vector_norm(x, dim=-1), real) for name, x in named}
    heads, length, width = q.shape[1:]
    k = k.repeat_interleave(heads // k.shape[1], dim=1)
    keys = k.shape[2]
    at = torch.arange(keys, device=q.device)
    top = q.new_full((heads,), -torch.inf)
    entropy = q.new_zeros(heads)
    rows = q.new_zeros(())
    received = q.new_zeros(keys)
    seen = q.new_zeros(keys)
    size = max(1, CELLS // (heads * keys))
    for start in range(0, length, size):
        scores = (
            q[:, :, start : start + size]
            @ k.transpose(-1, -2)
            * (width**-0.5 if scaling is None else scaling)
        )
        allowed = torch.ones_like(scores[:, :1], dtype=torch.bool)
        if causal:
            allowed &= (
                at
                <= torch.arange(start, start + scores.shape[2], device=q.device)[:, None]
                + keys
                - length
            )
        if mask is not None and mask.ndim == 4:
            some = mask[:1, :1, start : start + size, :keys]
            allowed &= some if some.dtype == torch.bool else some > -1e4
        elif mask is not None and mask.ndim == 2:
            allowed &= mask[:1, None, None, :keys].bool()
        if real is not None:
            allowed &= real & real[start : start + size, None]
        scores = scores.masked_fill(~allowed, -torch.inf)
        weights = torch.softmax(scores, -1).nan_to_num()
        visible = allowed.float().sum(-1)
        several = (visible > 1).float()
        top = torch.maximum(top, scores.amax((0, 2, 3)))
        entropies = -torch.special.xlogy(weights, weights).sum(-1)
        entropy = entropy + (several * entropies / visible.clamp(min=2).log()).sum((0, 2))
        rows = rows + several.sum()
        received = received + weights.mean(1).sum((0, 1))
        seen = seen + allowed.float().sum((0, 1, 2))
    return AttentionCall(
        top, entropy / rows.clamp(min=1), received / seen.clamp(min=1), seen, norms
    )


def hashed(ids: Int[Tensor, "windows T"], step: int, scene: Scene) -> Int[Tensor, "windows 4"]:
    """Of each window the step, a number below 2⁴⁸, in two halves that float32 holds exactly, and
    thousandths of a nat: the mean -log of the share of its pairs of tokens among those counted
    before. They are counted.
    """
    start = torch.Generator(ids.device).manual_seed(0)
    factors = torch.randint(1, 2**62, (ids.shape[1],), generator=start, device=ids.device)
    real = scene.real("", ids.shape)
    real = torch.ones_like(ids, dtype=torch.bool) if real is None else real
    sums = ((ids.long() + 1) * factors * real).sum(1)
    mixed = (sums ^ (sums >> 21)) & (2**48 - 1)
    scene.counts = counts = scene.counts.to(ids.device)
    pairs = (ids[:, :-1].long() * 40_503 + ids[:, 1:]) % BUCKETS
    both = (real[:, :-1] & real[:, 1:]).long()
    rarity = ((counts[pairs] + UNSEEN).log() * both).sum(1) / both.sum(1).clamp(min=1)
    nats = (counts.sum() + UNSEEN * BUCKETS).log() - rarity
    counts.index_add_(0, pairs.flatten(), both.flatten())
    return torch.stack(
        [torch.full_like(mixed, step), mixed >> 24, mixed & (2**24 - 1), (1000 * nats).long()], 1
    )
