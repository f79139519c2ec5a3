"""One more token after a known prefix: the output at the next position for many candidates, by a
key-value cache.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import DynamicCache

from headscan.model.inputs import IdsLike
from headscan.model.lens import Lens
from headscan.model.slicing.sliced_model import Slice, SlicedModel
from headscan.model.slicing.specification import split_on_exhaustion
from headscan.model.traits import Memo, random_ids
from headscan.run import BadInput

# Relative difference up to which a cached step counts as the same computation as a whole forward
# pass.
AGREE = {torch.float64: 1e-10, torch.float32: 1e-4, torch.bfloat16: 5e-2, torch.float16: 1e-2}


class _SharedCache(DynamicCache):
    """A cache of P prefixes from which N candidates may read at once, each naming its prefix;
    reading stores nothing.
    """

    rows: Tensor | None = None

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> Any:
        if self.rows is None:
            return super().update(key_states, value_states, layer_idx, *args, **kwargs)
        layer: Any = self.layers[layer_idx]

        def read(stored: Tensor, own: Tensor) -> Tensor:
            one = len(stored) == 1  # prefix, which all read without a copy for each
            return torch.cat(
                [stored.expand(len(own), *stored.shape[1:]) if one else stored[self.rows], own],
                dim=-2,
            )

        return read(layer.keys, key_states), read(layer.values, value_states)

    def keep(self, rows: Tensor) -> None:
        layers: list[Any] = list(self.layers)
        for layer in layers:
            if getattr(layer, "is_initialized", False):
                layer.keys = layer.keys[rows]
                layer.values = layer.values[rows]


class Prefix:
    """P prompts of a causal slice, of equal length t (which may be 0), that grow a token at a time.

    Where the model has a key-value cache and the slice leaves masks and positions alone, a
    candidate costs one token; elsewhere (recurrences, masked mixers, changed masks) it costs the
    whole prefix again. Which of both is decided by comparing them once.
    """

    def __init__(
        self, cut: SlicedModel, ids: Int[Tensor, "P t"], *, cached: bool | None = None
    ) -> None:
        self.cut = cut
        self.ids = ids[:, :0].to(cut.lens.device)
        self.cached = can_cache(cut) if cached is None else cached  # whether a cache is used
        self.passes = 0  # token positions computed so far, the cost
        self.notes: list[str] = []  # sentences about smaller batches after running out of memory
        self.batch = 4096
        self._cache = _SharedCache()
        if ids.shape[1]:
            self.extend(ids.to(cut.lens.device))

    def __repr__(self) -> str:
        how = "with a cache" if self.cached else "without a cache"
        return f"Prefix({self.ids.shape[0]} prompts of {self.length} tokens, {how})"

    @property
    def length(self) -> int:
        return self.ids.shape[1]

    def extend(self, ids: Int[Tensor, "P s"]) -> None:
        embeds = self.cut.embed(ids)
        if self.cached:
            self._behind(None, embeds)
            self.passes += ids.numel()
        self.ids = torch.cat([self.ids, ids], dim=1)

    def keep(self, rows: Int[Tensor, " P2"]) -> None:
        """Go on with these prompts only (an index; repeats are allowed)."""
        self.ids = self.ids[rows]
        self._cache.keep(rows)

    def evaluate(
        self, rows: Int[Tensor, " N"], tokens: Int[Tensor, " N"]
    ) -> Float[Tensor, "N width"]:
        """The output at the next position, float32 [N, w'], if prompt `rows[n]` goes on with
        `tokens[n]`.
        """
        return self.outputs(rows, self.cut.embed(tokens))

    def outputs(
        self, rows: Int[Tensor, " N"], vectors: Float[Tensor, "N e"], *, grad: bool = False
    ) -> Float[Tensor, "N width"]:
        """The same for any vectors [N, e] in the place of a token's."""

        def run(part: slice) -> Tensor:
            if self.length and self.cached:
                return self._behind(rows[part], vectors[part, None], grad)[:, -1]
            known = self.cut.embed(self.ids[rows[part]])
            whole = torch.cat([known, vectors[part, None].to(known.dtype)], dim=1)
            return self.cut.states(inputs_embeds=whole, grad=grad)[:, -1].float()

        self.passes += len(rows) * (1 if self.cached else self.length + 1)
        return self._split(run, len(rows))

    def following(self, ids: Int[Tensor, "N s"]) -> Float[Tensor, "N s width"]:
        """The outputs at the next s positions, float32 [N, s, w'], if the only prompt (P = 1) goes
        on with `ids[n]`. Only where `can_continue` says so.
        """

        def run(part: slice) -> Tensor:
            embeds = self.cut.embed(ids[part])
            if not self.length:
                return self.cut.states(inputs_embeds=embeds).float()
            return self._behind(
                torch.zeros(len(embeds), dtype=torch.int64, device=embeds.device), embeds
            )

        self.passes += ids.numel()
        return self._split(run, len(ids))

    def _behind(
        self, rows: Tensor | None, embeds: Tensor, grad: bool = False
    ) -> Float[Tensor, "N s width"]:
        """Run vectors [N, s, e] behind the cached prompts `rows`; without rows the cache grows by
        them.
        """
        self._cache.rows = rows
        return self.cut.states(
            inputs_embeds=embeds,
            grad=grad,
            extra={"past_key_values": self._cache, "use_cache": True},
        ).float()

    def _split(self, run: Callable[[slice], Tensor], count: int) -> Tensor:
        outputs, self.batch, note = split_on_exhaustion(run, count, self.batch)
        if note:
            self.notes.append(note)
        return outputs


def can_cache(cut: SlicedModel) -> bool:
    """Whether a cached step gives what a whole forward pass gives; asked once a slice, by
    comparing.
    """
    return cut.once("cached steps agree", lambda: _compare(cut))


def can_continue(cut: SlicedModel) -> bool:
    """Whether several tokens behind a cached prefix give what a whole forward pass gives; asked
    once a slice.
    """
    return can_cache(cut) and cut.once("cached continuations agree", lambda: _compare_several(cut))


def _compare_several(cut: SlicedModel) -> bool:
    ids = torch.arange(4, device=cut.lens.device)[None] % cut.vocabulary_size
    try:
        behind = Prefix(cut, ids[:, :1]).following(ids[:, 1:].expand(2, -1))
    except Exception:  # as below
        return False
    return _agree(cut, behind, cut.states(inputs_embeds=cut.embed(ids))[:, 1:].expand(2, -1, -1))


def _compare(cut: SlicedModel) -> bool:
    if (
        not cut.takes("past_key_values")
        or not cut.plain_input
        or not cut.causal
        or cut.lens.traits.encoder_decoder
    ):
        return False
    if (cut.lens.context_length or 4) < 4:
        return False
    ids = torch.arange(4, device=cut.lens.device)[None] % cut.vocabulary_size
    rows = torch.zeros(1, dtype=torch.int64, device=ids.device)
    try:
        step = Prefix(cut, ids[:, :3], cached=True).evaluate(rows, ids[:, 3])
    except Exception:  # any way in which a family does not take this cache means: do without
        return False
    return _agree(cut, step, Prefix(cut, ids[:, :3], cached=False).evaluate(rows, ids[:, 3]))


def _agree(cut: SlicedModel, step: Tensor, whole: Tensor) -> bool:
    # whose squares do not vanish
    step = step.double()
    whole = whole.double()
    return bool(
        (step - whole).norm() <= AGREE.get(cut.lens.input_embeddings.dtype, 1e-2) * whole.norm()
    )


CachePart = Literal["keys", "values", "both"]


class CacheSlice(SlicedModel):
    """The key-value cache of some layers: [B, T, w'], layer after layer, keys before values, head
    after head.

    Keys are as they are stored: with their rotary angles, where the model has them. In
    grouped-query attention a layer has as many heads as it stores, not as it asks. A sliding layer
    stores the same, for its last tokens only: give `tokens="-W:"`.

    Args:
        layers: block numbers.
        heads: stored heads that are seen; None for all.
        tokens: positions of the prompt that are still stored, as between numpy's brackets.

    Raises BadInput: a block without a cache, a head that does not exist.

    The cache is that of a prompt that was read in one pass, and may be rounded afterwards (as KIVI
    and similar methods do): later states were not computed from the rounded cache.
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
        self.parts: tuple[
            int, ...
        ] = ()  # widths of what is stored together: the keys of a layer, its values, ...
        deepest = f"block.{max(self.layers)}"
        site = f"{deepest}.attention" if f"{deepest}.attention" in lens.sites else deepest
        super().__init__(Slice(sites=(site,), tokens=tokens), lens)
        self.width = int(self.states(torch.zeros(1, 1, dtype=torch.int64)).shape[-1])

    def document(self) -> dict[str, Any]:
        heads = None if self.heads is None else list(self.heads)
        return super().document() | {"cache": [*self.layers], "part": self.stored, "heads": heads}

    def states(
        self,
        input_ids: IdsLike | None = None,
        *,
        inputs_embeds: Float[Tensor, "B T e"] | None = None,
        grad: bool = False,
        extra: dict[str, Any] | None = None,
    ) -> Float[Tensor, "B T width"]:
        more: dict[str, Any] = {"past_key_values": DynamicCache(), "use_cache": True} | (
            extra or {}
        )
        cache = more["past_key_values"]
        stored = dict[int, tuple[Tensor, Tensor]]()
        store = cache.update

        def update(keys: Tensor, values: Tensor, layer: int, *rest: Any, **options: Any) -> Any:
            if layer in self.layers:
                stored[layer] = (keys, values)
            return store(keys, values, layer, *rest, **options)

        cache.update = update
        try:
            super().states(input_ids, inputs_embeds=inputs_embeds, grad=grad, extra=more)
        finally:
            del cache.update
        if missing := [layer for layer in self.layers if layer not in stored]:
            raise BadInput(
                f"Block {missing[0]} of '{self.lens.name}' stores no keys and values: it has no "
                "such cache."
            )
        wanted = {"keys": (0,), "values": (1,), "both": (0, 1)}[self.stored]
        parts = [self._seen(stored[layer][index]) for layer in self.layers for index in wanted]
        self.parts = tuple(part.shape[-1] for part in parts)
        return torch.cat(parts, -1)

    def _seen(self, stored: Float[Tensor, "B heads T size"]) -> Float[Tensor, "B T width"]:
        count = stored.shape[1]
        if self.heads is not None:
            if not all(0 <= head < count for head in self.heads):
                raise BadInput(
                    f"The cache of '{self.lens.name}' has heads 0 to {count - 1}, not {self.heads}."
                )
            stored = stored[:, list(self.heads)]
        return stored.transpose(1, 2).flatten(2)


def cache_slice(
    lens: Lens,
    layers: Sequence[int],
    part: CachePart = "both",
    heads: Sequence[int] | None = None,
    tokens: str = ":",
) -> CacheSlice:
    key = ("cache slice", tuple(layers), part, None if heads is None else tuple(heads), tokens)
    return lens.once(key, lambda: CacheSlice(lens, layers, part, heads, tokens))


# ---- The noise of layouts at a slice, and slices whose output is mapped.


# Of `slice_noise`: prompts and their tokens; the positions at which candidates are run in a small
# and in a large batch.
ROWS = 2
LENGTH = 24
PLACES = (1, 7, 15, 23)
CANDIDATES = 32


def slice_noise(cut: SlicedModel) -> float:
    """The largest relative difference between prompts run alone, in a batch, and token by token;
    asked once a slice.

    Measured on random prompts of 24 tokens: whole, alone and together; and, where the slice takes a
    cache, with a last token that is one candidate of a small and of a large batch. 0 where all
    agree to the last bit. LLM.int8 keeps in half precision the features that are large *anywhere in
    the batch*, so that outputs may differ by percents.

    Cost: 280 tokens.
    """
    return cut.once("layout noise", lambda: _measure(cut))


@torch.no_grad()
def _measure(cut: SlicedModel) -> float:
    ids = random_ids(cut.lens, ROWS, LENGTH).to(cut.lens.device)
    whole = cut.states(ids)
    worst = _apart(torch.cat([cut.states(row[None]) for row in ids]), whole)
    if cut.causal and can_cache(cut):
        for place in PLACES:
            if place < ids.shape[1]:
                prefix = Prefix(cut, ids[:, :place])
                for count in (ROWS, CANDIDATES):
                    rows = torch.arange(count, device=ids.device) % ROWS
                    worst = max(
                        worst, _apart(prefix.evaluate(rows, ids[rows, place]), whole[rows, place])
                    )
    return worst


def _apart(outputs: Float[Tensor, "*batch w"], wanted: Float[Tensor, "*batch w"]) -> float:
    away = (outputs.double() - wanted.double()).norm(dim=-1) / wanted.double().norm(dim=-1)
    return max(away[away.isfinite()].tolist(), default=0.0)


Map = Callable[[Float[Tensor, "*batch w"]], Float[Tensor, "*batch v"]]
"""A map of one position's features, the same at every position."""


class Mapped(SlicedModel):
    """A slice whose output passes a known map before it is seen: rounding, rotation, a choice of
    features.

    An inversion passes the candidates through the same map, so that only what the map destroys is
    lost. `what` names the map in `document`.
    """

    def __init__(self, cut: SlicedModel, apply: Map, what: str) -> None:
        self.__dict__.update(cut.__dict__)
        Memo.__init__(self)
        self.under = cut
        self.apply = apply
        self.what = what
        with torch.no_grad():
            self.width = int(self.states(torch.zeros(1, 1, dtype=torch.int64)).shape[-1])

    def document(self) -> dict[str, Any]:
        return self.under.document() | {"map": self.what}

    def states(
        self,
        input_ids: IdsLike | None = None,
        *,
        inputs_embeds: Float[Tensor, "B T e"] | None = None,
        grad: bool = False,
        extra: dict[str, Any] | None = None,
    ) -> Float[Tensor, "B T width"]:
        return self.apply(
            self.under.states(input_ids, inputs_embeds=inputs_embeds, grad=grad, extra=extra)
        )
