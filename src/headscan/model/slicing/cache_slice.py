"""Slices of a key-value cache: what some layers store of a prompt."""

from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import DynamicCache

from headscan.model.inputs import IdsLike
from headscan.model.lens import Lens
from headscan.model.recording import evaluating
from headscan.model.slicing.sliced_model import Slice, SlicedModel
from headscan.model.stacks import FAULTS_OF_A_TRIAL
from headscan.run import BadInput

CachePart = Literal["keys", "values", "both"]
INDICES_OF_PART = {"keys": (0,), "values": (1,), "both": (0, 1)}


class CacheSlice(SlicedModel):
    """The key-value cache of some layers: [B, T, w'], layer after layer, keys before values.

    The heads of a layer come one after another. Keys are as they are stored: with their rotary
    angles, where the model has them. In grouped-query attention a layer has as many heads as it
    stores, not as it asks. A sliding layer stores the same, for its last tokens only: give
    `tokens="-W:"`.

    The cache is that of a prompt that was read in one pass, and may be rounded afterwards (as KIVI
    and similar methods do): later states were not computed from the rounded cache.

    Args:
        layers: block numbers.
        heads: stored heads that are seen; None for all.
        tokens: positions of the prompt that are still stored, as between numpy's brackets.

    Attributes:
        parts: widths of what is stored together: the keys of a layer, its values, ...

    Raises:
        BadInput: for a block without a cache, and a head that does not exist.
    """

    def __init__(
        self,
        lens: Lens,
        layers: Sequence[int],
        part: CachePart = "both",
        heads: Sequence[int] | None = None,
        tokens: str = ":",
    ) -> None:
        self.layers = tuple(layers)
        self.stored = part
        self.heads = None if heads is None else tuple(heads)
        self.parts: tuple[int, ...] = ()
        deepest_block = f"block.{max(self.layers)}"
        attention = f"{deepest_block}.attention"
        site = attention if attention in lens.sites else deepest_block
        super().__init__(Slice(sites=(site,), tokens=tokens), lens)
        one_token = torch.zeros(1, 1, dtype=torch.int64)
        self.width = int(self.states(one_token).shape[-1])

    def document(self) -> dict[str, Any]:
        heads = None if self.heads is None else list(self.heads)
        cache = {"cache": list(self.layers), "part": self.stored, "heads": heads}
        return super().document() | cache

    def states(
        self,
        input_ids: IdsLike | None = None,
        *,
        inputs_embeds: Float[Tensor, "B T e"] | None = None,
        grad: bool = False,
        extra: dict[str, Any] | None = None,
    ) -> Float[Tensor, "B T width"]:
        cache = DynamicCache(config=self.lens.model.config)
        options: dict[str, Any] = {"past_key_values": cache, "use_cache": True}
        options |= extra or {}
        frame = self._frame(options)
        stored: dict[int, tuple[Tensor, Tensor]] = {}
        with _storing(options["past_key_values"], self.layers, stored):
            super().states(input_ids, inputs_embeds=inputs_embeds, grad=grad, extra=options)
        missing = [layer for layer in self.layers if layer not in stored]
        if missing:
            raise BadInput(
                f"Block {missing[0]} of '{self.lens.name}' stores no keys and values: it has no "
                "such cache."
            )
        parts = [
            self._joined_heads(stored[layer][index]).to(self.lens.device)
            for layer in self.layers
            for index in INDICES_OF_PART[self.stored]
        ]
        self.parts = tuple(part.shape[-1] for part in parts)
        joined = torch.cat(parts, -1)
        return joined[:, frame.text(joined.shape[1])]

    def _joined_heads(self, stored: Float[Tensor, "B heads T size"]) -> Float[Tensor, "B T width"]:
        """Return the heads that are seen, one after another."""
        count = stored.shape[1]
        if self.heads is not None:
            if not all(0 <= head < count for head in self.heads):
                raise BadInput(
                    f"The cache of '{self.lens.name}' has heads 0 to {count - 1}, not {self.heads}."
                )
            stored = stored[:, list(self.heads)]
        return stored.transpose(1, 2).flatten(2)


@contextmanager
def _storing(
    cache: Any, layers: Container[int], stored: dict[int, tuple[Tensor, Tensor]]
) -> Iterator[None]:
    """Put the keys and values that a cache gets for the layers into `stored`."""
    update_cache = cache.update

    def update(keys: Tensor, values: Tensor, layer: int, *args: Any, **options: Any) -> Any:
        if layer in layers:
            stored[layer] = (keys, values)
        return update_cache(keys, values, layer, *args, **options)

    cache.update = update
    try:
        yield
    finally:
        del cache.update


def blocks_with_cache(lens: Lens) -> tuple[str, ...]:
    """Return the blocks that store keys and values of a prompt; hybrids have others, too.

    Raises:
        BadInput: where no block does.
    """
    blocks: tuple[str, ...] = lens.once("blocks with a cache", lambda: _blocks_with_cache(lens))
    if not blocks:
        raise BadInput(f"No block of '{lens.name}' stores keys and values: it has no such cache.")
    return blocks


@torch.no_grad()
def _blocks_with_cache(lens: Lens) -> tuple[str, ...]:
    inputs = lens.inputs.forward([[0]], None, None, None, ())
    stored: dict[int, tuple[Tensor, Tensor]] = {}
    cache = DynamicCache(config=lens.model.config)
    with evaluating(lens.model), _storing(cache, range(lens.depth), stored):
        try:
            lens.model(**inputs | {"past_key_values": cache, "use_cache": True})
        except FAULTS_OF_A_TRIAL:  # a model that takes no such cache
            return ()
    return tuple(f"block.{layer}" for layer in sorted(stored))


def cache_slice(
    lens: Lens,
    layers: Sequence[int],
    part: CachePart = "both",
    heads: Sequence[int] | None = None,
    tokens: str = ":",
) -> CacheSlice:
    """Return a slice of the cache; it is made once and stored with the Lens."""
    key = ("cache slice", tuple(layers), part, None if heads is None else tuple(heads), tokens)
    return lens.once(key, lambda: CacheSlice(lens, layers, part, heads, tokens))
