"""The forward pass behind every map: from embeddings to the logits that matter, with a shared prefix where it can be."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headscan.attribution.packed import Packed, Segment
from headscan.model import Lens
from headscan.model.inputs import Pooling, declared_pooling, pooled
from headscan.model.recording import evaluating
from headscan.run import BadInput
from headscan.text.source import parse_bytes

GIB = 2**30
PACKED = 1024  # tokens of one packed pass on a CPU

# What goes wrong when a model's attention cannot be taken apart, or takes no cache.
UNSUITED = (AttributeError, IndexError, KeyError, NotImplementedError, TypeError, ValueError, RuntimeError)


class Engine:
    """A model as a function from embeddings [B, T, e] to logits [B, P, V] at P positions, or to sentence vectors [B, 1, d].

    Only the wanted positions pass the head, where the model allows it. In a causal model, rows that share the first
    tokens with the prompt need only the rest: they are packed end to end and share the prompt's keys and values
    (`headscan.attribution.packed`), or, where attention cannot be taken apart so, go in batches through the model's own
    key-value cache. That either gives the same numbers is tried on the prompt itself before it is used.

    In an encoder-decoder the rows are the encoder's, and positions are those of the decoder, which is given `decoder_ids`:
    its start token, and the continuation so far. With `sentence`, rows are run whole, as every token moves the vector; the
    pooling is the one that the model's folder declares (`declared`), else the mean over all tokens, special ones too.
    """

    def __init__(self, lens: Lens, *, sentence: bool = False) -> None:
        self.lens = lens
        self.model = lens.model
        self.pools = sentence  # whether all positions become one vector, so that none is read by itself
        self.causal, self.translates = lens.traits.causal and not sentence, lens.traits.encoder_decoder
        if sentence and self.translates:
            raise BadInput(f"'{lens.name}' is an encoder-decoder, whose sentence vector is not explained.")
        if not sentence and "head" not in lens.sites:
            raise BadInput(
                f"'{lens.name}' ({type(lens.model).__name__}) has no output layer over the vocabulary, so it "
                "predicts no token; load it as a causal or masked language model, or explain its sentence vector "
                "(--target sentence)."
            )
        self.declared = declared_pooling(lens.origin.source) if sentence else None
        self.pooling: Pooling = self.declared or "mean"
        self.decoder_ids: list[int] = [self._decoder_start()] if self.translates else []
        names = inspect.signature(lens.model.forward).parameters
        self._keeps = "logits_to_keep" in names
        self._caches = "past_key_values" in names and "use_cache" in names
        self._uncached: dict[str, Any] = {"use_cache": False} if "use_cache" in names else {}
        self._positioned = "position_ids" in names
        self._prefix: list[tuple[Tensor, Tensor]] | None = None
        self._packed: Packed | None = None
        self.tokens_computed = 0

    def __repr__(self) -> str:
        return f"Engine({self.lens!r}, {'rows share the prompt' if self.shares else 'whole rows'})"

    @property
    def masked(self) -> bool:
        return not (self.causal or self.translates or self.pools)

    @property
    def packs(self) -> bool:
        return self._packed is not None

    @property
    def shares(self) -> bool:
        return self._packed is not None or self._prefix is not None

    def embed(self, ids: Int[Tensor, ...]) -> Float[Tensor, "... e"]:
        with torch.no_grad():
            vectors: Tensor = self.model.get_input_embeddings()(ids.to(self.lens.device))
        return vectors

    def logits(
        self, embeds: Float[Tensor, "B T e"], positions: Sequence[int], prefix: int = 0, *, grad: bool = False
    ) -> Float[Tensor, "B P V"]:
        """Logits [B, P, V] at `positions`, or the sentence vectors [B, 1, d].

        Args:
            embeds: [B, T - prefix, e], the rows without their first `prefix` tokens.
            positions: counted in the whole row; none before `prefix`. In an encoder-decoder, counted in `decoder_ids`.
            prefix: how many first tokens are those of the prompt given to `share`.
            grad: record gradients.
        """
        self.tokens_computed += embeds.shape[0] * embeds.shape[1]
        options: dict[str, Any] = dict(self._uncached)
        model = getattr(self.model, self.model.base_model_prefix, self.model) if self.pools else self.model
        index = torch.tensor([p - prefix for p in positions], device=embeds.device)
        if prefix:
            options = {"past_key_values": self._cache(prefix, embeds.shape[0]), "use_cache": True}
        if self._keeps and not self.pools:
            options["logits_to_keep"] = index
        if self.translates:
            start = torch.tensor(self.decoder_ids, device=embeds.device)
            options["decoder_input_ids"] = start.expand(embeds.shape[0], -1)
        with torch.set_grad_enabled(grad), evaluating(self.model):
            output = model(inputs_embeds=embeds, **options)
        if self.pools:
            return pooled(output.last_hidden_state, self.pooling)[:, None]
        logits: Tensor = output.logits
        return logits if self._keeps else logits[:, index]

    def _decoder_start(self) -> int:
        for config in (getattr(self.model, "generation_config", None), self.model.config):
            for name in ("decoder_start_token_id", "bos_token_id", "pad_token_id"):
                if isinstance(token := getattr(config, name, None), int):
                    return token
        raise BadInput(f"'{self.lens.name}' names no token that its decoder begins with (decoder_start_token_id).")

    def share(self, embeds: Float[Tensor, "T e"], positions: Sequence[int] = (-1,)) -> Float[Tensor, "P V"]:
        """Keep the keys and values of a prompt [T, e], where that gives the model's own numbers.

        Returns the prompt's logits [P, V] at `positions` (counted from the end where negative).
        """
        length = embeds.shape[0]
        places = [p % length for p in positions]
        self._prefix = self._packed = None
        # Tried on the first prompt of each size (a power of two), and taken as known for later ones.
        known: dict[int, bool] = self.lens.once("packed rows agree", dict)
        size = length.bit_length()
        possible = self.causal and length >= 4 and self._positioned and known.get(size, True)
        packed = Packed(self.lens, keeps=self._keeps, options=self._uncached)
        if possible and size in known:
            with suppress(NotImplementedError):  # such as a window that only this prompt is longer than
                logits = packed.record(embeds, places)
                self._packed = packed
                return logits
            possible = False
        with torch.inference_mode():
            own = self.logits(embeds[None], places)[0]
        if possible:
            known[size] = self._agrees(packed, embeds, places, own)
            self._packed = packed if known[size] else None
        if self.causal and length >= 4 and self._packed is None and self._caches:
            self._cache_prompt(embeds, places, own)
        return own

    def each(self, segments: Sequence[Segment]) -> list[Tensor]:
        """Logits [R, P, V] of the rows of each segment; in one pass, where rows can be packed."""
        if self._packed is not None:
            self.tokens_computed += sum(segment.tokens for segment in segments)
            return self._packed.logits(segments)
        with torch.inference_mode():
            return [self.logits(segment.embeds, segment.positions, segment.prefix) for segment in segments]

    def _agrees(self, packed: Packed, embeds: Tensor, positions: list[int], own: Tensor) -> bool:
        """Whether packed rows that change nothing give the model's own logits [P, V]."""
        length, places = embeds.shape[0], tuple(positions)
        starts = {min(length // 2, min(positions)), min(length - 2, min(positions))}
        try:
            made = [packed.record(embeds, positions)]
            rows = [Segment(embeds[None, start:].expand(2, -1, -1), start, places) for start in starts]
            made += [row for part in packed.logits(rows) for row in part]
        except UNSUITED:
            return False
        return all(self._same(logits, own) for logits in made)

    def _same(self, made: Tensor, own: Tensor) -> bool:
        # Rounded weights round their inputs, too: the least difference may tip a value over to the next step.
        precise = own.dtype in (torch.float32, torch.float64) and not self.lens.traits.quantised
        apart = (made.float() - own.float()).abs().max() / own.float().abs().max().clamp(min=1e-6)
        return bool(apart < (1e-4 if precise else 2e-2))

    def _cache_prompt(self, embeds: Tensor, positions: list[int], own: Tensor) -> None:
        """Keep the model's own cache of the prompt, where rows behind it give the model's own logits [P, V]."""
        length = embeds.shape[0]
        start = min(length // 2, min(positions))
        try:
            with torch.inference_mode(), evaluating(self.model):
                layers = self.model(inputs_embeds=embeds[None], use_cache=True).past_key_values.layers
                prefix = [(layer.keys, layer.values) for layer in layers]
                if any(keys is None or keys.ndim != 4 or keys.shape[2] != length for keys, _ in prefix):
                    return
                self._prefix = prefix
                again = self.logits(embeds[None, start:].expand(2, -1, -1), positions, start)
        except UNSUITED:
            self._prefix = None
            return
        if not all(self._same(logits, own) for logits in again):
            self._prefix = None

    def _cache(self, prefix: int, rows: int) -> Any:
        from transformers import DynamicCache

        assert self._prefix is not None
        cache = DynamicCache()
        for number, layer in enumerate(self._prefix):
            keys, values = (part[:, :, :prefix].expand(rows, -1, -1, -1) for part in layer)
            cache.update(keys, values, number)
        return cache


@contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """No gradient for the weights: only the input's is wanted, and theirs would keep every activation in memory."""
    learning = [weight for weight in model.parameters() if weight.requires_grad]
    for weight in learning:
        weight.requires_grad_(False)
    try:
        yield
    finally:
        for weight in learning:
            weight.requires_grad_(True)


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes of one row, and how many rows go through the model together."""

    row_bytes: int  # estimated peak memory of one row beside the weights: activations, keys and values, logits
    rows: int  # of a micro-batch
    budget: int  # bytes that a micro-batch may take
    slack: int  # wasted tokens that cost as much as another pass; rows whose shared prefix differs by less go together
    tokens: int  # of one pass where rows are packed end to end
    segment_slack: int  # wasted tokens that cost as much as another segment of a packed pass


def parse_memory(size: str | int) -> int:
    """An amount of memory in bytes: a number is in MiB, a text may name its unit. BadInput for none above 0.

    >>> parse_memory("512MiB") == parse_memory(512) == parse_memory("512") == 2**29
    True
    """
    bare = isinstance(size, int) or size.strip().replace(".", "", 1).isdigit()
    amount = parse_bytes(f"{size}MiB" if bare else size)
    if amount <= 0:
        raise BadInput(f"An amount of memory is more than 0, not {size}; write for example 512MiB or 4GiB.")
    return amount


def plan(
    lens: Lens, length: int, outputs: int, *, grad: bool = False, budget: int | None = None, rows: int | None = None
) -> MemoryPlan:
    """Estimate a row of `length` tokens read at `outputs` positions, and choose the micro-batch.

    `grad`: a backward pass follows, which keeps every layer's activations. `budget`: bytes, by default half of what is free
    on a GPU, else 1 GiB. `rows`: a fixed number of rows instead.

    The estimate: d features, L blocks, f the width of the feed-forward part; a token takes about (6 d + 2 f) numbers in
    flight, with gradients in each of the L blocks; a block's keys and values 2 d; attention scores T a head and token
    when gradients are kept; logits V a position, twice.
    """
    config: Any = lens.model.config.get_text_config()
    width = int(getattr(config, "hidden_size", None) or lens.input_embeddings.shape[1])
    inner = int(getattr(config, "intermediate_size", None) or getattr(config, "n_inner", None) or 4 * width)
    heads = int(getattr(config, "num_attention_heads", None) or 1)
    size = max(lens.input_embeddings.element_size(), 2)
    in_flight = 6 * width + 2 * inner + (heads * length if grad else 0)
    numbers = length * (in_flight * (lens.depth if grad else 1) + 2 * width * lens.depth)
    row = numbers * size + outputs * lens.vocabulary_size * 8
    on_gpu = lens.device.type == "cuda"
    if budget is None:
        budget = torch.cuda.mem_get_info(lens.device)[0] // 2 if on_gpu else GIB
    # Starting a pass costs about what 1e9 operations cost (5e11 on a GPU), and 100 tokens of the smallest model here:
    # that many tokens may be computed in vain.
    body = max(sum(weight.numel() for weight in lens.model.parameters()) - lens.input_embeddings.numel(), 1)
    slack = int(min(max((5e11 if on_gpu else 1e9) / (2 * body), 32), 65_536 if on_gpu else 128))
    # Beyond a few thousand tokens a pass is no faster a token on a CPU: its working set leaves the cache.
    most = (65_536 if on_gpu else 4_096) // max(length, 1)
    count = rows or max(1, min(int(budget // max(row, 1)), max(most, 1)))
    # Measured: matrix products are at their best from a few hundred tokens on, and the working set should stay in the
    # cache; a segment costs two attention calls a block, about the time of 3e6 operations.
    fitting = count * length if rows or on_gpu else min(count * length, max(PACKED, length))
    segment_slack = slack if on_gpu else int(min(max(3e6 * lens.depth / (2 * body), 8), 64))
    return MemoryPlan(row, count, budget, slack, fitting, segment_slack)
