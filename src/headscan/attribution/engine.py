"""The forward pass behind every map: from embeddings to the logits that matter."""

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headscan.attribution.packed import Packed, Segment
from headscan.model import Lens
from headscan.model.inputs import pooled
from headscan.model.recording import evaluating
from headscan.model.sentence import Pooling, declared_pooling
from headscan.run import BadInput, exhausted
from headscan.run.exhaustion import give_back

GIB = 2**30
PACKED_TOKENS = 1024
"""Tokens of one packed pass on a CPU."""
SHORTEST_SHARED_PROMPT = 4
TOLERANCE = 1e-4
ROUNDED_TOLERANCE = 2e-2
"""The relative differences that packing may make, of precise and of rounded computations."""

UNSUITED = (
    AttributeError,
    IndexError,
    KeyError,
    NotImplementedError,
    TypeError,
    ValueError,
    RuntimeError,
)
"""What is raised when a model's attention cannot be taken apart."""


class Engine:
    """A model as a function of embeddings [B, T, e]: to logits [B, P, V] at P positions.

    Only the positions that are asked for pass the head, where the model allows it. In a causal
    model, rows that share the first tokens with the prompt are packed end to end and share the
    prompt's keys and values (`headscan.attribution.packed`), where that gives the model's own
    numbers on the prompt itself; else rows are run whole.

    With `sentence`, all positions become one vector [B, 1, d]; the pooling is the one that the
    model's folder declares (`declared`), else the mean over all tokens, special ones too.

    Attributes:
        tokens_computed: the tokens that passed the model so far.

    Raises:
        BadInput: for encoder-decoders, and models that predict no token without `sentence`.
    """

    def __init__(self, lens: Lens, *, sentence: bool = False) -> None:
        if lens.traits.encoder_decoder:
            raise BadInput(
                f"'{lens.name}' is an encoder-decoder, whose predictions are not attributed."
            )
        if not sentence and "head" not in lens.sites:
            raise BadInput(
                f"'{lens.name}' ({type(lens.model).__name__}) has no output layer over the "
                "vocabulary, so it predicts no token; load it as a causal or masked language "
                "model, or explain its sentence vector (--target sentence)."
            )
        self.lens = lens
        self.model = lens.model
        self.pools = sentence
        self.causal = lens.traits.causal and not sentence
        self.declared = declared_pooling(lens.origin.source) if sentence else None
        self.pooling: Pooling = self.declared or "mean"
        self.packed: Packed | None = None
        self.tokens_computed = 0
        arguments = inspect.signature(lens.model.forward).parameters
        self._selects_positions = "logits_to_keep" in arguments
        self._takes_positions = "position_ids" in arguments
        self._options: dict[str, Any] = {"use_cache": False} if "use_cache" in arguments else {}

    def __repr__(self) -> str:
        return f"Engine({self.lens!r}, {'rows share the prompt' if self.packs else 'whole rows'})"

    @property
    def masked(self) -> bool:
        """Return whether the model fills masks."""
        return not (self.causal or self.pools)

    @property
    def packs(self) -> bool:
        """Return whether rows share the keys and values of a prompt."""
        return self.packed is not None

    def embed(self, ids: Int[Tensor, "..."]) -> Float[Tensor, "... e"]:
        """Return the input embeddings of tokens."""
        with torch.no_grad():
            vectors: Tensor = self.model.get_input_embeddings()(ids.to(self.lens.device))
        return vectors

    def logits(
        self, embeds: Float[Tensor, "B T e"], positions: Sequence[int], *, grad: bool = False
    ) -> Float[Tensor, "B P V"]:
        """Return logits at positions, or the sentence vectors [B, 1, d].

        Where memory runs out, rows are run in smaller pieces, unless gradients are recorded.
        `grad`: whether gradients are recorded.
        """
        rows = len(embeds)
        self.tokens_computed += rows * embeds.shape[1]
        if grad or rows < 2:
            return self._pass(embeds, positions, grad)
        pieces: list[Tensor] = []

        def run_piece(begin: int, end: int) -> None:
            pieces.append(self._pass(embeds[begin:end], positions, grad))

        self.lens.limit.run(rows, run_piece)
        return torch.cat(pieces) if len(pieces) > 1 else pieces[0]

    def _pass(
        self, embeds: Float[Tensor, "B T e"], positions: Sequence[int], grad: bool
    ) -> Float[Tensor, "B P V"]:
        if self.pools:
            return self._sentence_vectors(embeds, grad)
        index = torch.tensor(list(positions), device=embeds.device)
        options = dict(self._options)
        if self._selects_positions:
            options["logits_to_keep"] = index
        with torch.set_grad_enabled(grad), evaluating(self.model):
            logits: Tensor = self.model(inputs_embeds=embeds, **options).logits
        return logits if self._selects_positions else logits[:, index]

    def _sentence_vectors(
        self, embeds: Float[Tensor, "B T e"], grad: bool
    ) -> Float[Tensor, "B 1 d"]:
        body = getattr(self.model, self.model.base_model_prefix, self.model)
        with torch.set_grad_enabled(grad), evaluating(self.model):
            output = body(inputs_embeds=embeds, **self._options)
        return pooled(output.last_hidden_state, self.pooling)[:, None]

    def share(
        self, embeds: Float[Tensor, "T e"], positions: Sequence[int] = (-1,)
    ) -> Float[Tensor, "P V"]:
        """Store the keys and values of a prompt, where sharing them gives the model's own numbers.

        Returns:
            The prompt's logits at `positions`, which are counted from the end where negative.
        """
        length = len(embeds)
        read_at = [position % length for position in positions]
        self.packed = None
        with torch.inference_mode():
            logits = self.logits(embeds[None], read_at)[0]
        if self.causal and length >= SHORTEST_SHARED_PROMPT and self._takes_positions:
            packed = Packed(
                self.lens, selects_positions=self._selects_positions, options=self._options
            )
            if self._agrees(packed, embeds, read_at, logits):
                self.packed = packed
        return logits

    def each(self, segments: Sequence[Segment]) -> list[Tensor]:
        """Return the logits [R, P, V] of each segment's rows; in one pass where they are packed."""
        if self.packed is not None:
            self.tokens_computed += sum(segment.tokens for segment in segments)
            return self._packed_logits(self.packed, segments)
        with torch.inference_mode():
            return [self.logits(segment.embeds, segment.positions) for segment in segments]

    def _packed_logits(self, packed: Packed, segments: Sequence[Segment]) -> list[Tensor]:
        """Return the logits of packed rows; in passes of half the rows where memory runs out."""
        rows = sum(segment.rows for segment in segments)
        limit = self.lens.limit
        if rows < 2 or limit.fits(rows):
            try:
                return packed.logits(segments)
            except (MemoryError, RuntimeError) as error:
                if rows < 2 or not exhausted(error):
                    raise
            give_back()
            limit.shrink(rows, rows // 2)
        if len(segments) > 1:
            half = len(segments) // 2
            first = self._packed_logits(packed, segments[:half])
            return first + self._packed_logits(packed, segments[half:])
        segment = segments[0]
        halves = [replace(segment, embeds=embeds) for embeds in segment.embeds.tensor_split(2)]
        pieces = [self._packed_logits(packed, [half])[0] for half in halves]
        return [torch.cat(pieces)]

    def _agrees(
        self,
        packed: Packed,
        embeds: Float[Tensor, "T e"],
        positions: list[int],
        logits: Float[Tensor, "P V"],
    ) -> bool:
        """Return whether packed rows that change nothing give the model's own logits."""
        length = embeds.shape[0]
        first_position = min(positions)
        prefixes = {min(length // 2, first_position), min(length - 2, first_position)}
        segments = [
            Segment(embeds[None, prefix:].expand(2, -1, -1), prefix, tuple(positions))
            for prefix in prefixes
        ]
        try:
            packed_logits = [packed.record(embeds, positions)]
            for rows in packed.logits(segments):
                packed_logits += list(rows)
        except UNSUITED:
            return False
        # Rounded weights round their inputs, too: the least difference may tip a value over to the
        # next step.
        is_precise = logits.dtype in (torch.float32, torch.float64)
        rounds = not is_precise or self.lens.traits.quantised
        tolerance = ROUNDED_TOLERANCE if rounds else TOLERANCE
        allowed = tolerance * logits.float().abs().max().clamp(min=1e-6)
        return all(
            bool((row.float() - logits.float()).abs().max() < allowed) for row in packed_logits
        )


@contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """Record no gradient for the weights, in this context.

    Only the input's is needed, and theirs would hold every activation in memory.
    """
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    for weight in trained:
        weight.requires_grad_(False)
    try:
        yield
    finally:
        for weight in trained:
            weight.requires_grad_(True)


@dataclass(frozen=True)
class MemoryPlan:
    """The amount that goes through the model together.

    Attributes:
        row_bytes: estimated peak memory of one row beside the weights: activations, keys and
            values, logits.
        rows: of a micro-batch.
        tokens: of one pass where rows are packed end to end.
        slack: wasted tokens that cost as much as another segment of a packed pass.
    """

    row_bytes: int
    rows: int
    tokens: int
    slack: int


def plan(
    lens: Lens, length: int, outputs: int, *, grad: bool = False, budget: int | None = None
) -> MemoryPlan:
    """Return the micro-batch for rows of `length` tokens that are read at `outputs` positions.

    Args:
        grad: whether a backward pass follows, which holds every layer's activations.
        budget: bytes, by default half of what is free on a GPU, else 1 GiB.
    """
    row_bytes = _row_bytes(lens, length, outputs, grad)
    on_gpu = lens.device.type == "cuda"
    if budget is None:
        budget = torch.cuda.mem_get_info(lens.device)[0] // 2 if on_gpu else GIB
    # Beyond a few thousand tokens a pass is no faster a token on a CPU: its working set leaves the
    # cache.
    most_tokens = 65_536 if on_gpu else 4_096
    most_rows = max(most_tokens // max(length, 1), 1)
    rows = max(1, min(int(budget // max(row_bytes, 1)), most_rows))
    # Measured: matrix products are at their best from a few hundred tokens on, and the working set
    # should stay in the cache.
    tokens = rows * length
    if not on_gpu:
        tokens = min(tokens, max(PACKED_TOKENS, length))
    return MemoryPlan(row_bytes, rows, tokens, _slack(lens, on_gpu))


def _row_bytes(lens: Lens, length: int, outputs: int, grad: bool) -> int:
    """Return the estimated peak memory of one row beside the weights.

    d features, L blocks, f the width of the feed-forward part: a token takes about (6 d + 2 f)
    numbers in flight, with gradients in each of the L blocks; a block's keys and values 2 d;
    attention scores T a head and token when gradients are recorded; logits V a position, twice.
    """
    config: Any = lens.model.config.get_text_config()
    width = int(getattr(config, "hidden_size", None) or lens.input_embeddings.shape[1])
    declared_inner = getattr(config, "intermediate_size", None) or getattr(config, "n_inner", None)
    inner = int(declared_inner or 4 * width)
    heads = int(getattr(config, "num_attention_heads", None) or 1)
    bytes_per_number = max(lens.input_embeddings.element_size(), 2)
    in_flight = 6 * width + 2 * inner
    blocks_in_flight = 1
    if grad:
        in_flight += heads * length
        blocks_in_flight = lens.depth
    numbers = length * (in_flight * blocks_in_flight + 2 * width * lens.depth)
    return numbers * bytes_per_number + outputs * lens.vocabulary_size * 8


def _slack(lens: Lens, on_gpu: bool) -> int:
    """Return the tokens that cost as much as another segment.

    A segment costs two attention calls a block, about the time of 3e6 operations (5e11 for a pass
    on a GPU).
    """
    weights = sum(weight.numel() for weight in lens.model.parameters())
    operations_per_token = 2 * max(weights - lens.input_embeddings.numel(), 1)
    if on_gpu:
        return int(min(max(5e11 / operations_per_token, 32), 65_536))
    return int(min(max(3e6 * lens.depth / operations_per_token, 8), 64))
