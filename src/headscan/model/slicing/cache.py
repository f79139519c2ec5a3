"""The key-value cache as what is seen: keys, values or both of some layers and heads, as the model's attention reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import DynamicCache

from headscan.model.inputs import IdsLike
from headscan.model.lens import Lens
from headscan.model.slicing.slice import Slice
from headscan.model.slicing.sliced_model import SlicedModel
from headscan.run import BadInput

__all__ = ["CachePart", "CacheSlice", "cache_slice"]

CachePart = Literal["keys", "values", "both"]


class CacheSlice(SlicedModel):
    """What the cache of some layers holds of each token: [B, T, w'], layer after layer, keys before values, head after head.

    Keys are as they are stored: with their rotary angles, where the model has them. In grouped-query attention a layer has
    as many heads as it stores, not as it asks. A sliding layer stores the same, for its last tokens only: give `tokens="-W:"`.

    Args:
        lens: a causal model with a key-value cache.
        layers: block numbers.
        part: keys, values or both.
        heads: stored heads that are seen; None for all.
        tokens: positions of the prompt that are still stored, as between numpy's brackets.
        offset: position of the first token: positions before it were padding, or are not attended to.

    Attributes:
        parts: widths of what is stored together: the keys of a layer, its values, ...
        size: numbers of one head.

    Raises:
        BadInput: a block without a cache, a head that there is not.

    What is released is the cache of a prompt that was read in one pass, rounded afterwards (as KIVI and its like do): later
    states were not computed from the rounded one.
    """

    def __init__(
        self, lens: Lens, layers: Sequence[int], part: CachePart = "both", heads: Sequence[int] | None = None,
        tokens: str = ":", offset: int = 0,
    ) -> None:  # fmt: skip
        self.offset, self.size = offset, 0
        self.layers, self.stored, self.heads = tuple(layers), part, None if heads is None else tuple(heads)
        self.parts: tuple[int, ...] = ()
        deepest = f"block.{max(self.layers)}"
        site = f"{deepest}.attention" if f"{deepest}.attention" in lens.sites else deepest
        super().__init__(Slice(sites=(site,), tokens=tokens), lens)
        if offset and not self.takes("position_ids"):
            raise BadInput(f"'{lens.name}' is not told positions, so that its tokens stand at no offset.")
        self.width = int(self.states(torch.zeros(1, 1, dtype=torch.int64)).shape[-1])

    def __repr__(self) -> str:
        return f"CacheSlice({self.stored} of blocks {self.layers} of {self.lens.name!r}: {self.width} features)"

    def document(self) -> dict[str, Any]:
        """The slice it stops at, and what of the cache is seen."""
        heads = None if self.heads is None else list(self.heads)
        return super().document() | {
            "cache": [*self.layers],
            "part": self.stored,
            "heads": heads,
            "offset": self.offset,
        }

    def states(
        self,
        input_ids: IdsLike | None = None,
        *,
        inputs_embeds: Float[Tensor, "B T e"] | None = None,
        grad: bool = False,
        extra: dict[str, Any] | None = None,
    ) -> Float[Tensor, "B T width"]:
        """What the pass adds to the cache: of every token, or of those behind a prefix that `extra` brings."""
        more: dict[str, Any] = {"past_key_values": DynamicCache(), "use_cache": True} | (extra or {})
        cache, found = more["past_key_values"], dict[int, tuple[Tensor, Tensor]]()
        if self.offset and "position_ids" not in more:
            length = torch.as_tensor(input_ids).shape[-1] if inputs_embeds is None else inputs_embeds.shape[1]
            start = self.offset + cache.get_seq_length()
            places = torch.arange(start, start + length, device=self.lens.device)
            # Beyond the context's last place there is none: what is measured on long inputs is measured at that.
            more["position_ids"] = places.clamp(max=(self.lens.context_length or start + length) - 1)[None]
        store = cache.update

        def update(keys: Tensor, values: Tensor, layer: int, *rest: Any, **options: Any) -> Any:
            if layer in self.layers:
                found[layer] = (keys, values)
            return store(keys, values, layer, *rest, **options)

        cache.update = update
        try:
            super().states(input_ids, inputs_embeds=inputs_embeds, grad=grad, extra=more)
        finally:
            del cache.update
        missing = [layer for layer in self.layers if layer not in found]
        if missing:
            raise BadInput(f"Block {missing[0]} of '{self.lens.name}' stores no keys and values: it has no such cache.")
        wanted = {"keys": (0,), "values": (1,), "both": (0, 1)}[self.stored]
        parts = [self._seen(found[layer][one]) for layer in self.layers for one in wanted]
        self.parts = tuple(one.shape[-1] for one in parts)
        return torch.cat(parts, -1)

    def _seen(self, stored: Float[Tensor, "B heads T size"]) -> Float[Tensor, "B T width"]:
        count, self.size = stored.shape[1], stored.shape[-1]
        if self.heads is not None:
            if not all(0 <= head < count for head in self.heads):
                raise BadInput(f"The cache of '{self.lens.name}' has heads 0 to {count - 1}, not {self.heads}.")
            stored = stored[:, list(self.heads)]
        return stored.transpose(1, 2).flatten(2)


def cache_slice(
    lens: Lens, layers: Sequence[int], part: CachePart = "both", heads: Sequence[int] | None = None, tokens: str = ":",
    offset: int = 0,
) -> CacheSlice:  # fmt: skip
    """A `CacheSlice`, made once a model."""
    key = ("cache slice", tuple(layers), part, None if heads is None else tuple(heads), tokens, offset)
    return lens.once(key, lambda: CacheSlice(lens, layers, part, heads, tokens, offset))
