"""How a model is run for maps: many rows of one prompt packed into a pass, and embeddings to the
logits that matter.
"""

import inspect
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.activations import NewGELUActivation

from headscan.model import Lens
from headscan.model.inputs import Pooling, declared_pooling, pooled
from headscan.model.recording import evaluating
from headscan.model.sites import first_tensor
from headscan.run import BadInput

NAME = "headscan-packed"
REFUSED = ("softcap", "s_aux", "position_bias", "encoder_hidden_states")
"""Options of attention functions that change the scores: where one is set, the packed way is not
taken.
"""


@dataclass(frozen=True)
class Segment:
    """Rows [R, n, e] that share the prompt's first `prefix` tokens, read at `positions` of the
    whole row.
    """

    embeds: Tensor
    prefix: int
    positions: tuple[int, ...]

    @property
    def tokens(self) -> int:
        return self.embeds.shape[0] * self.embeds.shape[1]


class Packed:
    """A causal model with one prompt's keys and values, for rows that share its start.

    Raises NotImplementedError (in `record` and `logits`) where the model's attention cannot be
    taken apart so.
    """

    def __init__(self, lens: Lens, *, keeps: bool, options: dict[str, Any]) -> None:
        self.lens = lens
        self.model = lens.model
        self._keeps = keeps  # whether the head can be asked for some positions only
        self._options = options
        self._layers: dict[int, tuple[Tensor, Tensor]] = {}
        self._segments: Sequence[Segment] = ()
        self._recording = False
        last = f"block.{lens.depth - 1}.mlp"
        mlp = lens.tap(last) if last in lens.sites else None
        alone = (
            mlp is not None and mlp.calls == 1 and mlp.shape_from is None and mlp.where == "output"
        )
        self._last_mlp: nn.Module | None = mlp.module if mlp is not None and alone else None
        self._gelus = [
            module for module in lens.model.modules() if isinstance(module, NewGELUActivation)
        ]
        self._block = -1

    def record(self, embeds: Tensor, positions: Sequence[int]) -> Tensor:
        """Keep the keys and values of the prompt [T, e]; its logits [P, V] at `positions`."""
        self._recording = True
        self._layers = {}
        try:
            logits = self.logits([Segment(embeds[None], 0, tuple(positions))])[0][0]
        finally:
            self._recording = False
        if len(self._layers) != self.lens.depth:
            raise NotImplementedError(
                "The attention of some block does not go through the attention interface."
            )
        return logits

    def logits(self, segments: Sequence[Segment]) -> list[Tensor]:
        """Logits [R, P, V] of each segment's rows, all in one pass."""
        device = segments[0].embeds.device
        joined = torch.cat([segment.embeds.flatten(0, 1) for segment in segments])[None]
        places = []
        wanted = []
        at = 0
        for segment in segments:
            rows, length = segment.embeds.shape[:2]
            places.append(torch.arange(segment.prefix, segment.prefix + length).repeat(rows))
            starts = at + length * torch.arange(rows)
            wanted.append(
                (starts[:, None] + torch.tensor(segment.positions) - segment.prefix).flatten()
            )
            at += rows * length
        index = torch.cat(wanted).to(device)
        options = dict(self._options) | ({"logits_to_keep": index} if self._keeps else {})
        self._segments = segments
        self._block = -1
        with self._installed(index):
            output = self.model(
                inputs_embeds=joined, position_ids=torch.cat(places)[None].to(device), **options
            ).logits
        logits = output[0] if self._keeps else output[0, index]
        shapes = [(segment.embeds.shape[0], len(segment.positions)) for segment in segments]
        parts = logits.split([rows * places for rows, places in shapes])
        return [part.reshape(*shape, -1) for part, shape in zip(parts, shapes, strict=True)]

    @contextmanager
    def _installed(self, index: Tensor) -> Iterator[None]:
        config = self.model.config
        before = config._attn_implementation
        AttentionInterface.register(NAME, self._attend)
        with torch.inference_mode(), evaluating(self.model), ExitStack() as stack:
            for module in self._gelus:  # the same function in one kernel instead of eight
                module.__dict__["forward"] = partial(F.gelu, approximate="tanh")
                stack.callback(module.__dict__.pop, "forward")
            if self._last_mlp is not None:
                shape: list[torch.Size] = []
                stack.callback(
                    self._last_mlp.register_forward_pre_hook(
                        partial(_narrowed, index, shape)
                    ).remove
                )
                stack.callback(
                    self._last_mlp.register_forward_hook(partial(_widened, index, shape)).remove
                )
            config._attn_implementation = NAME
            stack.callback(setattr, config, "_attn_implementation", before)
            yield

    # ---- attention

    def _attend(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        scaling: float | None = None,
        **options: Any,
    ) -> tuple[Tensor, None]:
        """Attention of packed rows: query [1, H, N, h], key and value [1, K, N, h], K a divisor of
        H.
        """
        layer = getattr(module, "layer_idx", None)
        window = options.get("sliding_window")
        longest = max(segment.prefix + segment.embeds.shape[1] for segment in self._segments)
        strange = attention_mask is not None or any(
            options.get(name) is not None for name in REFUSED
        )
        if layer is None or strange or (window is not None and window < longest):
            raise NotImplementedError("The attention of this model has masks or biases of its own.")
        self._block += 1
        heads = query.shape[1]
        if key.shape[1] != heads:
            key, value = (
                part.repeat_interleave(heads // part.shape[1], 1) for part in (key, value)
            )
        if self._recording:
            self._layers[layer] = (key.contiguous(), value.contiguous())
        only_last = (
            not self._recording
            and self._last_mlp is not None
            and self._block == self.lens.depth - 1
        )
        made = query.new_zeros if only_last else query.new_empty
        out = made(1, query.shape[2], heads, value.shape[-1])
        at = 0
        for segment in self._segments:
            rows, length = segment.embeds.shape[:2]
            part = slice(at, at + rows * length)
            q, k, v = (
                x[0, :, part].unflatten(1, (rows, length)).transpose(0, 1)
                for x in (query, key, value)
            )
            last = only_last and segment.positions == (segment.prefix + length - 1,)
            q = q[:, :, -1:] if last else q
            states, normaliser = _softmax_product(q, k, v, scaling, causal=not last and length > 1)
            if segment.prefix:
                shared_k, shared_v = (x[:, :, : segment.prefix] for x in self._layers[layer])
                flat = q.transpose(0, 1).flatten(1, 2)[None]  # rows end to end: [1, H, R n, h]
                shared, shared_normaliser = (
                    part[0].unflatten(1, (rows, -1)).transpose(0, 1)
                    for part in _softmax_product(flat, shared_k, shared_v, scaling, causal=False)
                )
                share = torch.sigmoid(shared_normaliser - normaliser).unsqueeze(-1).to(states.dtype)
                states = torch.lerp(states, shared, share)
            place = out[0, part].unflatten(0, (rows, length))
            (place[:, -1:] if last else place).copy_(states.transpose(1, 2))
            at += rows * length
        return out, None


def _softmax_product(
    query: Tensor, key: Tensor, value: Tensor, scaling: float | None, *, causal: bool
) -> tuple[Tensor, Tensor]:
    """softmax(q kᵀ · scaling) v [B, H, n, h] and the logarithm of its normaliser [B, H, n]."""
    if query.device.type == "cpu" and query.shape[-1] == value.shape[-1]:
        product: tuple[Tensor, Tensor] = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query, key, value, 0.0, causal, scale=scaling
        )
        return product
    scores = (query @ key.transpose(-1, -2)).float() * (
        query.shape[-1] ** -0.5 if scaling is None else scaling
    )
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(hidden, -torch.inf)
    normaliser = scores.logsumexp(-1)
    return (scores - normaliser.unsqueeze(-1)).exp().to(value.dtype) @ value, normaliser


def _narrowed(
    index: Tensor, shape: list[torch.Size], module: nn.Module, inputs: tuple[Any, ...]
) -> tuple[Any, ...]:
    shape[:] = [inputs[0].shape]
    return (inputs[0][:, index], *inputs[1:])


def _widened(
    index: Tensor, shape: list[torch.Size], module: nn.Module, inputs: Any, output: Any
) -> Tensor:
    narrow = first_tensor(output)
    if narrow is None or not isinstance(output, Tensor):
        raise NotImplementedError("The last feed-forward part returns more than one tensor.")
    wide = narrow.new_zeros(1, shape[0][1], narrow.shape[-1])
    wide[:, index] = narrow
    return wide


# ---- The forward pass behind every map: from embeddings to the logits that matter, with a shared prefix where it can be.


GIB = 2**30
PACKED = 1024  # tokens of one packed pass on a CPU

# What goes wrong when a model's attention cannot be taken apart.
UNSUITED = (
    AttributeError,
    IndexError,
    KeyError,
    NotImplementedError,
    TypeError,
    ValueError,
    RuntimeError,
)


class Engine:
    """A model as a function from embeddings [B, T, e] to logits [B, P, V] at P positions, or to
    sentence vectors [B, 1, d].

    Only the wanted positions pass the head, where the model allows it. In a causal model, rows that
    share the first tokens with the prompt are packed end to end and share the prompt's keys and
    values (`headscan.attribution.engine`), where that gives the model's own numbers on the prompt
    itself; else rows are run whole.

    With `sentence`, all positions become one vector; the pooling is the one that the model's folder
    declares (`declared`), else the mean over all tokens, special ones too.
    """

    def __init__(self, lens: Lens, *, sentence: bool = False) -> None:
        self.lens = lens
        self.model = lens.model
        self.pools = sentence
        self.causal = lens.traits.causal and not sentence
        if lens.traits.encoder_decoder:
            raise BadInput(
                f"'{lens.name}' is an encoder-decoder, whose predictions are not attributed."
            )
        if not sentence and "head" not in lens.sites:
            lacks = (
                f"'{lens.name}' ({type(lens.model).__name__}) has no output layer over the "
                "vocabulary"
            )
            advice = (
                "load it as a causal or masked language model, or explain its sentence vector "
                "(--target sentence)"
            )
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

    def logits(
        self, embeds: Float[Tensor, "B T e"], positions: Sequence[int], *, grad: bool = False
    ) -> Float[Tensor, "B P V"]:
        """Logits [B, P, V] at `positions`, or the sentence vectors [B, 1, d]; `grad` records
        gradients.
        """
        self.tokens_computed += embeds.shape[0] * embeds.shape[1]
        options: dict[str, Any] = dict(self._uncached)
        model = (
            getattr(self.model, self.model.base_model_prefix, self.model)
            if self.pools
            else self.model
        )
        index = torch.tensor(list(positions), device=embeds.device)
        if self._keeps and not self.pools:
            options["logits_to_keep"] = index
        with torch.set_grad_enabled(grad), evaluating(self.model):
            output = model(inputs_embeds=embeds, **options)
        if self.pools:
            return pooled(output.last_hidden_state, self.pooling)[:, None]
        logits: Tensor = output.logits
        return logits if self._keeps else logits[:, index]

    def share(
        self, embeds: Float[Tensor, "T e"], positions: Sequence[int] = (-1,)
    ) -> Float[Tensor, "P V"]:
        """Keep the keys and values of a prompt [T, e], where that gives the model's own numbers.
        Returns the prompt's logits [P, V] at `positions` (counted from the end where negative).
        """
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
        length = embeds.shape[0]
        places = tuple(positions)
        starts = {min(length // 2, min(positions)), min(length - 2, min(positions))}
        try:
            made = [packed.record(embeds, positions)]
            rows = [
                Segment(embeds[None, start:].expand(2, -1, -1), start, places) for start in starts
            ]
            made += [row for part in packed.logits(rows) for row in part]
        except UNSUITED:
            return False
        # Rounded weights round their inputs, too: the least difference may tip a value over to the
        # next step.
        precise = own.dtype in (torch.float32, torch.float64) and not self.lens.traits.quantised
        allowed = (1e-4 if precise else 2e-2) * own.float().abs().max().clamp(min=1e-6)
        return all(bool((logits.float() - own.float()).abs().max() < allowed) for logits in made)


@contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """No gradient for the weights: only the input's is wanted, and theirs would keep every
    activation in memory.
    """
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

    # estimated peak memory of one row beside the weights: activations, keys and values, logits
    row_bytes: int
    rows: int  # of a micro-batch
    tokens: int  # of one pass where rows are packed end to end
    slack: int  # wasted tokens that cost as much as another segment of a packed pass


def plan(
    lens: Lens, length: int, outputs: int, *, grad: bool = False, budget: int | None = None
) -> MemoryPlan:
    """Estimate a row of `length` tokens read at `outputs` positions, and choose the micro-batch.

    `grad`: a backward pass follows, which keeps every layer's activations. `budget`: bytes, by
    default half of what is free on a GPU, else 1 GiB.

    The estimate: d features, L blocks, f the width of the feed-forward part; a token takes about (6
    d + 2 f) numbers in flight, with gradients in each of the L blocks; a block's keys and values 2
    d; attention scores T a head and token when gradients are kept; logits V a position, twice.
    """
    config: Any = lens.model.config.get_text_config()
    width = int(getattr(config, "hidden_size", None) or lens.input_embeddings.shape[1])
    inner = int(
        getattr(config, "intermediate_size", None) or getattr(config, "n_inner", None) or 4 * width
    )
    heads = int(getattr(config, "num_attention_heads", None) or 1)
    size = max(lens.input_embeddings.element_size(), 2)
    in_flight = 6 * width + 2 * inner + (heads * length if grad else 0)
    numbers = length * (in_flight * (lens.depth if grad else 1) + 2 * width * lens.depth)
    row = numbers * size + outputs * lens.vocabulary_size * 8
    on_gpu = lens.device.type == "cuda"
    if budget is None:
        budget = torch.cuda.mem_get_info(lens.device)[0] // 2 if on_gpu else GIB
    body = max(
        sum(weight.numel() for weight in lens.model.parameters()) - lens.input_embeddings.numel(), 1
    )
    # Beyond a few thousand tokens a pass is no faster a token on a CPU: its working set leaves the
    # cache.
    most = (65_536 if on_gpu else 4_096) // max(length, 1)
    count = max(1, min(int(budget // max(row, 1)), max(most, 1)))
    # Measured: matrix products are at their best from a few hundred tokens on, and the working set
    # should stay in the cache; a segment costs two attention calls a block, about the time of 3e6
    # operations (5e11 for a pass on a GPU).
    fitting = count * length if on_gpu else min(count * length, max(PACKED, length))
    slack = (
        min(max(5e11 / (2 * body), 32), 65_536)
        if on_gpu
        else min(max(3e6 * lens.depth / (2 * body), 8), 64)
    )
    return MemoryPlan(row, count, fitting, int(slack))
