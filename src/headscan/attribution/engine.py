"""The forward pass behind every map: from embeddings to the logits that matter, with a shared prefix where it can be."""

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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

GIB = 2**30
PACKED = 1024  # tokens of one packed pass on a CPU

# What goes wrong when a model's attention cannot be taken apart.
UNSUITED = (AttributeError, IndexError, KeyError, NotImplementedError, TypeError, ValueError, RuntimeError)


class Engine:
    """A model as a function from embeddings [B, T, e] to logits [B, P, V] at P positions, or to sentence vectors [B, 1, d].

    Only the wanted positions pass the head, where the model allows it. In a causal model, rows that share the first
    tokens with the prompt are packed end to end and share the prompt's keys and values (`headscan.attribution.packed`),
    where that gives the model's own numbers on the prompt itself; else rows are run whole.

    With `sentence`, all positions become one vector; the pooling is the one that the model's folder declares
    (`declared`), else the mean over all tokens, special ones too.
    """

    def __init__(self, lens: Lens, *, sentence: bool = False) -> None:
        self.lens, self.model, self.pools = lens, lens.model, sentence
        self.causal = lens.traits.causal and not sentence
        if lens.traits.encoder_decoder:
            raise BadInput(f"'{lens.name}' is an encoder-decoder, whose predictions are not attributed.")
        if not sentence and "head" not in lens.sites:
            lacks = f"'{lens.name}' ({type(lens.model).__name__}) has no output layer over the vocabulary"
            advice = "load it as a causal or masked language model, or explain its sentence vector (--target sentence)"
            raise BadInput(f"{lacks}, so it predicts no token; {advice}.")
        self.declared = declared_pooling(lens.origin.source) if sentence else None
        self.pooling: Pooling = self.declared or "mean"
        names = inspect.signature(lens.model.forward).parameters
        self._keeps = "logits_to_keep" in names
        self._uncached: dict[str, Any] = {"use_cache": False} if "use_cache" in names else {}
        self._positioned = "position_ids" in names
        self.packed: Packed | None = None
        self.tokens_computed = 0

    def __repr__(self) -> str:
        return f"Engine({self.lens!r}, {'rows share the prompt' if self.packs else 'whole rows'})"

    @property
    def masked(self) -> bool:
        return not (self.causal or self.pools)

    @property
    def packs(self) -> bool:
        return self.packed is not None

    def embed(self, ids: Int[Tensor, "..."]) -> Float[Tensor, "... e"]:
        with torch.no_grad():
            vectors: Tensor = self.model.get_input_embeddings()(ids.to(self.lens.device))
        return vectors

    def logits(self, embeds: Float[Tensor, "B T e"], positions: Sequence[int], *, grad: bool = False) -> Float[Tensor, "B P V"]:
        """Logits [B, P, V] at `positions`, or the sentence vectors [B, 1, d]; `grad` records gradients."""
        self.tokens_computed += embeds.shape[0] * embeds.shape[1]
        options: dict[str, Any] = dict(self._uncached)
        model = getattr(self.model, self.model.base_model_prefix, self.model) if self.pools else self.model
        index = torch.tensor(list(positions), device=embeds.device)
        if self._keeps and not self.pools:
            options["logits_to_keep"] = index
        with torch.set_grad_enabled(grad), evaluating(self.model):
            output = model(inputs_embeds=embeds, **options)
        if self.pools:
            return pooled(output.last_hidden_state, self.pooling)[:, None]
        logits: Tensor = output.logits
        return logits if self._keeps else logits[:, index]

    def share(self, embeds: Float[Tensor, "T e"], positions: Sequence[int] = (-1,)) -> Float[Tensor, "P V"]:
        """Keep the keys and values of a prompt [T, e], where that gives the model's own numbers. Returns the prompt's logits
        [P, V] at `positions` (counted from the end where negative)."""
        places = [p % len(embeds) for p in positions]
        self.packed = None
        with torch.inference_mode():
            own = self.logits(embeds[None], places)[0]
        if self.causal and len(embeds) >= 4 and self._positioned:
            packed = Packed(self.lens, keeps=self._keeps, options=self._uncached)
            self.packed = packed if self._agrees(packed, embeds, places, own) else None
        return own

    def each(self, segments: Sequence[Segment]) -> list[Tensor]:
        """Logits [R, P, V] of the rows of each segment; in one pass, where rows can be packed."""
        if self.packed is not None:
            self.tokens_computed += sum(segment.tokens for segment in segments)
            return self.packed.logits(segments)
        with torch.inference_mode():
            return [self.logits(segment.embeds, segment.positions) for segment in segments]

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
        # Rounded weights round their inputs, too: the least difference may tip a value over to the next step.
        precise = own.dtype in (torch.float32, torch.float64) and not self.lens.traits.quantised
        allowed = (1e-4 if precise else 2e-2) * own.float().abs().max().clamp(min=1e-6)
        return all(bool((logits.float() - own.float()).abs().max() < allowed) for logits in made)


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
    """How much goes through the model together."""

    row_bytes: int  # estimated peak memory of one row beside the weights: activations, keys and values, logits
    rows: int  # of a micro-batch
    tokens: int  # of one pass where rows are packed end to end
    slack: int  # wasted tokens that cost as much as another segment of a packed pass


def plan(lens: Lens, length: int, outputs: int, *, grad: bool = False, budget: int | None = None) -> MemoryPlan:
    """Estimate a row of `length` tokens read at `outputs` positions, and choose the micro-batch.

    `grad`: a backward pass follows, which keeps every layer's activations. `budget`: bytes, by default half of what is free
    on a GPU, else 1 GiB.

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
    body = max(sum(weight.numel() for weight in lens.model.parameters()) - lens.input_embeddings.numel(), 1)
    # Beyond a few thousand tokens a pass is no faster a token on a CPU: its working set leaves the cache.
    most = (65_536 if on_gpu else 4_096) // max(length, 1)
    count = max(1, min(int(budget // max(row, 1)), max(most, 1)))
    # Measured: matrix products are at their best from a few hundred tokens on, and the working set should stay in the
    # cache; a segment costs two attention calls a block, about the time of 3e6 operations (5e11 for a pass on a GPU).
    fitting = count * length if on_gpu else min(count * length, max(PACKED, length))
    slack = min(max(5e11 / (2 * body), 32), 65_536) if on_gpu else min(max(3e6 * lens.depth / (2 * body), 8), 64)
    return MemoryPlan(row, count, fitting, int(slack))
