"""One more token after a known prefix: outputs at the next position, by a key-value cache."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import DynamicCache

from headscan.model.slicing.sliced_model import SlicedModel
from headscan.model.traits import random_ids

AGREEMENT = {torch.float64: 1e-10, torch.float32: 1e-4, torch.bfloat16: 5e-2, torch.float16: 1e-2}
"""The relative difference up to which a cached step counts as the same as a whole forward pass."""
OTHER_AGREEMENT = 1e-2
TRIAL_TOKENS = 4
LARGEST_BATCH = 4096

# Of `slice_noise`: prompts and their tokens; the positions at which candidates are run, in a small
# and in a large batch.
NOISE_ROWS = 2
NOISE_LENGTH = 24
NOISE_POSITIONS = (1, 7, 15, 23)
NOISE_CANDIDATES = (NOISE_ROWS, 32)


class _SharedCache(DynamicCache):
    """A cache of P prefixes from which N candidates may read at once.

    `rows` has the prefix of each candidate; while it is set, reading stores nothing. `begun`: it
    holds what stands in front of a text (`Lens.frame`).
    """

    rows: Tensor | None = None
    begun = False

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> Any:
        if self.rows is None:
            return super().update(key_states, value_states, layer_idx, *args, **kwargs)
        layer: Any = self.layers[layer_idx]
        keys = self._behind_prefixes(layer.keys, key_states)
        values = self._behind_prefixes(layer.values, value_states)
        return keys, values

    def _behind_prefixes(self, stored: Tensor, new: Tensor) -> Tensor:
        if len(stored) == 1:  # all candidates read one prefix, without a copy for each
            prefixes = stored.expand(len(new), *stored.shape[1:])
        else:
            prefixes = stored[self.rows]
        return torch.cat([prefixes, new], dim=-2)

    def keep(self, rows: Tensor) -> None:
        """Go on with these prefixes only."""
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

    Attributes:
        ids: the prompts [P, t].
        cached: whether a cache is used.
        passes: token positions computed so far, the cost.
    """

    def __init__(
        self, cut: SlicedModel, ids: Int[Tensor, "P t"], *, cached: bool | None = None
    ) -> None:
        self.cut = cut
        self.ids = ids[:, :0].to(cut.lens.device)
        self.cached = can_cache(cut) if cached is None else cached
        self.passes = 0
        self.batch = LARGEST_BATCH
        self._cache = _SharedCache()
        if ids.shape[1]:
            self.extend(ids.to(cut.lens.device))

    def __repr__(self) -> str:
        cache = "with a cache" if self.cached else "without a cache"
        return f"Prefix({self.ids.shape[0]} prompts of {self.length} tokens, {cache})"

    @property
    def length(self) -> int:
        """The number of tokens of each prompt."""
        return self.ids.shape[1]

    def extend(self, ids: Int[Tensor, "P s"]) -> None:
        """Append tokens to the prompts."""
        embeds = self.cut.embed(ids)
        if self.cached:
            self._behind(None, embeds)
            self._cache.begun = True
            self.passes += ids.numel()
        self.ids = torch.cat([self.ids, ids], dim=1)

    def keep(self, rows: Int[Tensor, " P2"]) -> None:
        """Go on with these prompts only (an index; repeats are allowed)."""
        self.ids = self.ids[rows]
        self._cache.keep(rows)

    def evaluate(
        self, rows: Int[Tensor, " N"], tokens: Int[Tensor, " N"]
    ) -> Float[Tensor, "N width"]:
        """Return the outputs at the next position, in float32, if prompt rows[n] has tokens[n]."""
        return self.outputs(rows, self.cut.embed(tokens))

    def outputs(
        self, rows: Int[Tensor, " N"], vectors: Float[Tensor, "N e"], *, grad: bool = False
    ) -> Float[Tensor, "N width"]:
        """Return the outputs at the next position for any vectors in the place of a token's."""

        def run(part: slice) -> Tensor:
            embeds = vectors[part, None]
            if self.length and self.cached:
                return self._behind(rows[part], embeds, grad)[:, -1]
            prefixes = self.cut.embed(self.ids[rows[part]])
            prompts = torch.cat([prefixes, embeds.to(prefixes.dtype)], dim=1)
            return self.cut.states(inputs_embeds=prompts, grad=grad)[:, -1].float()

        self.passes += len(rows) * (1 if self.cached else self.length + 1)
        return self.cut.in_batches(run, len(rows), self.batch)

    def following(self, ids: Int[Tensor, "N s"]) -> Float[Tensor, "N s width"]:
        """Return the outputs at the next s positions, in float32, if the one prompt has ids[n].

        Only where `can_continue` says so.
        """

        def run(part: slice) -> Tensor:
            embeds = self.cut.embed(ids[part])
            if not self.length:
                return self.cut.states(inputs_embeds=embeds).float()
            rows = torch.zeros(len(embeds), dtype=torch.int64, device=embeds.device)
            return self._behind(rows, embeds)

        self.passes += ids.numel()
        return self.cut.in_batches(run, len(ids), self.batch)

    def _behind(
        self, rows: Tensor | None, embeds: Tensor, grad: bool = False
    ) -> Float[Tensor, "N s width"]:
        """Return the outputs of vectors [N, s, e] behind the cached prompts `rows`.

        Without rows the cache grows by the vectors.
        """
        self._cache.rows = rows
        extra = {"past_key_values": self._cache, "use_cache": True}
        return self.cut.states(inputs_embeds=embeds, grad=grad, extra=extra).float()


def can_cache(cut: SlicedModel) -> bool:
    """Return whether a cached step gives what a whole forward pass gives.

    This is found by comparing, once a slice.
    """
    return cut.once("cached steps agree", lambda: _cached_step_agrees(cut))


def can_continue(cut: SlicedModel) -> bool:
    """Return whether several tokens behind a cached prefix give what a whole forward pass gives.

    This is found by comparing, once a slice.
    """
    if not can_cache(cut):
        return False
    return cut.once("cached continuations agree", lambda: _cached_continuation_agrees(cut))


def _trial_ids(cut: SlicedModel) -> Int[Tensor, "1 T"]:
    return torch.arange(TRIAL_TOKENS, device=cut.lens.device)[None] % cut.vocabulary_size


def _cached_step_agrees(cut: SlicedModel) -> bool:
    if not cut.takes("past_key_values") or not cut.plain_input:
        return False
    if not cut.causal or cut.lens.traits.encoder_decoder:
        return False
    if (cut.lens.context_length or TRIAL_TOKENS) < TRIAL_TOKENS:
        return False
    ids = _trial_ids(cut)
    prompt = ids[:, :-1]
    token = ids[:, -1]
    rows = torch.zeros_like(token)
    try:
        step = Prefix(cut, prompt, cached=True).evaluate(rows, token)
    except Exception:  # whatever a family raises that does not take this cache
        return False
    whole_pass = Prefix(cut, prompt, cached=False).evaluate(rows, token)
    return _agree(cut, step, whole_pass)


def _cached_continuation_agrees(cut: SlicedModel) -> bool:
    ids = _trial_ids(cut)
    prompt = ids[:, :1]
    continuation = ids[:, 1:].expand(2, -1)
    try:
        continuations = Prefix(cut, prompt).following(continuation)
    except Exception:  # whatever a family raises that does not take several tokens
        return False
    whole_pass = cut.states(inputs_embeds=cut.embed(ids))[:, 1:]
    return _agree(cut, continuations, whole_pass.expand(2, -1, -1))


def _agree(cut: SlicedModel, outputs: Tensor, expected: Tensor) -> bool:
    # In double precision, in which squares do not vanish.
    outputs = outputs.double()
    expected = expected.double()
    tolerance = AGREEMENT.get(cut.lens.input_embeddings.dtype, OTHER_AGREEMENT)
    return bool((outputs - expected).norm() <= tolerance * expected.norm())


def slice_noise(cut: SlicedModel) -> float:
    """Return the largest relative difference of outputs between batches of different layouts.

    It is measured once a slice, on random prompts of 24 tokens: in one batch, alone, and, where the
    slice takes a cache, with a last token that is one candidate of a small and of a large batch. It
    is 0 where all agree to the last bit. LLM.int8 computes in half precision with the features that
    are large *anywhere in the batch*, so that outputs may differ by percents.

    Cost: 280 tokens.
    """
    return cut.once("layout noise", lambda: _measure_noise(cut))


@torch.no_grad()
def _measure_noise(cut: SlicedModel) -> float:
    ids = random_ids(cut.lens, NOISE_ROWS, NOISE_LENGTH).to(cut.lens.device)
    outputs = cut.states(ids)
    alone = torch.cat([cut.states(row[None]) for row in ids])
    largest = _largest_difference(alone, outputs)
    if not cut.causal or not can_cache(cut):
        return largest
    for position in NOISE_POSITIONS:
        if position >= ids.shape[1]:
            continue
        prefix = Prefix(cut, ids[:, :position])
        for count in NOISE_CANDIDATES:
            rows = torch.arange(count, device=ids.device) % NOISE_ROWS
            steps = prefix.evaluate(rows, ids[rows, position])
            largest = max(largest, _largest_difference(steps, outputs[rows, position]))
    return largest


def _largest_difference(
    outputs: Float[Tensor, "*batch w"], expected: Float[Tensor, "*batch w"]
) -> float:
    differences = (outputs.double() - expected.double()).norm(dim=-1)
    relative = differences / expected.double().norm(dim=-1)
    return max(relative[relative.isfinite()].tolist(), default=0.0)
