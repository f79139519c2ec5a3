"""Rows that share a prompt's first tokens, run end to end in one pass of a causal model.

The rows read the prompt's keys and values, which are computed once. For a query q of a row, with
the prompt's keys and values (K', V') and the row's own (K, V),

    softmax(q [K', K]ᵀ) [V', V] = (1 - s) softmax(q Kᵀ) V + s softmax(q K'ᵀ) V',

where s = sigmoid(n' - n), and n, n' are the logarithms of the two normalisers.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headscan.model import Lens
from headscan.model.recording import (
    Args,
    Kwargs,
    after_call,
    before_call,
    evaluating,
    replaced_forward,
)

NAME = "headscan-packed"
REFUSED_OPTIONS = ("softcap", "s_aux", "position_bias", "encoder_hidden_states")
"""Options of attention functions that change the scores: where one is set, rows are not packed."""


@dataclass(frozen=True)
class Segment:
    """Rows [R, n, e] that share the prompt's first `prefix` tokens, read at `positions`.

    Positions are those of the whole row.
    """

    embeds: Tensor
    prefix: int
    positions: tuple[int, ...]

    @property
    def rows(self) -> int:
        """R, the number of rows."""
        return self.embeds.shape[0]

    @property
    def length(self) -> int:
        """n, the tokens of a row behind the prefix."""
        return self.embeds.shape[1]

    @property
    def tokens(self) -> int:
        """The tokens of all rows."""
        return self.rows * self.length

    @property
    def reads_last_only(self) -> bool:
        """Return whether each row is read at its last token, and nowhere else."""
        return self.positions == (self.prefix + self.length - 1,)


class Packed:
    """A causal model with one prompt's keys and values, for rows that share its start.

    Args:
        selects_positions: whether the head can be asked for some positions only.
        options: further arguments of the model's forward pass.

    Raises:
        NotImplementedError: in `record` and `logits`, where the model's attention cannot be taken
            apart so.
    """

    def __init__(self, lens: Lens, *, selects_positions: bool, options: Mapping[str, Any]) -> None:
        from transformers.activations import NewGELUActivation

        self.lens = lens
        self.model = lens.model
        self._selects_positions = selects_positions
        self._options = options
        self._prompt_cache: dict[int, tuple[Tensor, Tensor]] = {}
        self._segments: Sequence[Segment] = ()
        self._recording = False
        self._block = -1
        self._last_mlp = _last_mlp(lens)
        self._gelus = [
            module for module in lens.model.modules() if isinstance(module, NewGELUActivation)
        ]

    def record(self, embeds: Tensor, positions: Sequence[int]) -> Tensor:
        """Store the keys and values of the prompt [T, e]; return its logits [P, V] at positions."""
        self._recording = True
        self._prompt_cache = {}
        try:
            logits = self.logits([Segment(embeds[None], 0, tuple(positions))])[0][0]
        finally:
            self._recording = False
        if len(self._prompt_cache) != self.lens.depth:
            raise NotImplementedError(
                "The attention of some block does not go through the attention interface."
            )
        return logits

    def logits(self, segments: Sequence[Segment]) -> list[Tensor]:
        """Return the logits [R, P, V] of each segment's rows, all in one pass."""
        device = segments[0].embeds.device
        joined = torch.cat([segment.embeds.flatten(0, 1) for segment in segments])[None]
        position_ids = torch.cat([_position_ids(segment) for segment in segments])
        read_at = _read_indices(segments).to(device)
        options = dict(self._options)
        if self._selects_positions:
            options["logits_to_keep"] = read_at
        self._segments = segments
        self._block = -1
        with self._installed(read_at):
            output = self.model(
                inputs_embeds=joined, position_ids=position_ids[None].to(device), **options
            ).logits
        logits = output[0] if self._selects_positions else output[0, read_at]
        parts = logits.split([segment.rows * len(segment.positions) for segment in segments])
        return [
            part.reshape(segment.rows, len(segment.positions), -1)
            for part, segment in zip(parts, segments, strict=True)
        ]

    @contextmanager
    def _installed(self, read_at: Tensor) -> Iterator[None]:
        """Let the model run packed rows, in this context."""
        from transformers import AttentionInterface

        config = self.model.config
        with ExitStack() as contexts:
            contexts.enter_context(torch.inference_mode())
            contexts.enter_context(evaluating(self.model))
            for module in self._gelus:
                # The same function in one kernel instead of eight.
                gelu = partial(F.gelu, approximate="tanh")
                contexts.enter_context(replaced_forward(module, gelu))
            if self._last_mlp is not None:
                narrowing = _NarrowedCall(read_at)
                contexts.enter_context(before_call(self._last_mlp, narrowing.narrow))
                contexts.enter_context(after_call(self._last_mlp, narrowing.widen))
            AttentionInterface.register(NAME, self._attend)
            contexts.callback(AttentionInterface.register, NAME, _not_installed)
            contexts.callback(setattr, config, "_attn_implementation", config._attn_implementation)
            config._attn_implementation = NAME
            yield

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
        """Return the attention of packed rows, in the form of transformers' attention functions.

        query is [1, H, N, h], key and value are [1, K, N, h], with K a divisor of H.
        """
        layer = self._checked_layer(module, attention_mask, options)
        self._block += 1
        heads = query.shape[1]
        if key.shape[1] != heads:
            key = key.repeat_interleave(heads // key.shape[1], 1)
            value = value.repeat_interleave(heads // value.shape[1], 1)
        if self._recording:
            self._prompt_cache[layer] = (key.contiguous(), value.contiguous())
        # In the last block only the positions that are read go on, where that is easy to tell.
        is_last_block = self._block == self.lens.depth - 1
        may_skip = is_last_block and not self._recording and self._last_mlp is not None
        new_output = query.new_zeros if may_skip else query.new_empty
        output = new_output(1, query.shape[2], heads, value.shape[-1])
        start = 0
        for segment in self._segments:
            end = start + segment.tokens
            q = _rows_of(query[0, :, start:end], segment)
            k = _rows_of(key[0, :, start:end], segment)
            v = _rows_of(value[0, :, start:end], segment)
            target = output[0, start:end].unflatten(0, (segment.rows, segment.length))
            if may_skip and segment.reads_last_only:
                q = q[:, :, -1:]
                target = target[:, -1:]
            states = self._segment_attention(layer, segment, q, k, v, scaling)
            target.copy_(states.transpose(1, 2))
            start = end
        return output, None

    def _checked_layer(
        self, module: nn.Module, attention_mask: Tensor | None, options: Mapping[str, Any]
    ) -> int:
        """Return the layer of an attention module whose scores are plain products."""
        layer = getattr(module, "layer_idx", None)
        window = options.get("sliding_window")
        longest = max(segment.prefix + segment.length for segment in self._segments)
        changes_scores = any(options.get(name) is not None for name in REFUSED_OPTIONS)
        is_too_short = window is not None and window < longest
        if layer is None or attention_mask is not None or changes_scores or is_too_short:
            raise NotImplementedError("The attention of this model has its own masks or biases.")
        return int(layer)

    def _segment_attention(
        self,
        layer: int,
        segment: Segment,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        scaling: float | None,
    ) -> Tensor:
        """Return the attention of a segment's rows [R, H, n, h] to themselves and the prompt."""
        is_causal = query.shape[2] > 1
        states, normaliser = _softmax_product(query, key, value, scaling, causal=is_causal)
        if not segment.prefix:
            return states
        keys, values = self._prompt_cache[layer]
        end_to_end = query.transpose(0, 1).flatten(1, 2)[None]  # [1, H, R n, h]
        shared, shared_normaliser = _softmax_product(
            end_to_end,
            keys[:, :, : segment.prefix],
            values[:, :, : segment.prefix],
            scaling,
            causal=False,
        )
        shared = shared[0].unflatten(1, (segment.rows, -1)).transpose(0, 1)
        shared_normaliser = shared_normaliser[0].unflatten(1, (segment.rows, -1)).transpose(0, 1)
        share = torch.sigmoid(shared_normaliser - normaliser).unsqueeze(-1).to(states.dtype)
        return torch.lerp(states, shared, share)


def _not_installed(*_args: Any, **_options: Any) -> tuple[Tensor, None]:
    raise RuntimeError("The attention of packed rows was called outside a pass of packed rows.")


def _last_mlp(lens: Lens) -> nn.Module | None:
    """Return the last block's MLP, where it is one module that runs once on [B, T, d]."""
    site = f"block.{lens.depth - 1}.mlp"
    if site not in lens.sites:
        return None
    tap = lens.tap(site)
    is_plain = tap.calls == 1 and tap.shape_from is None and tap.where == "output"
    return tap.module if is_plain else None


def _position_ids(segment: Segment) -> Tensor:
    """Return the position of each token of a segment's rows, end to end."""
    positions = torch.arange(segment.prefix, segment.prefix + segment.length)
    return positions.repeat(segment.rows)


def _read_indices(segments: Sequence[Segment]) -> Tensor:
    """Return where the rows of segments are read, of all their tokens end to end."""
    indices = []
    start = 0
    for segment in segments:
        row_starts = start + segment.length * torch.arange(segment.rows)
        offsets = torch.tensor(segment.positions) - segment.prefix
        indices.append((row_starts[:, None] + offsets).flatten())
        start += segment.tokens
    return torch.cat(indices)


def _rows_of(states: Tensor, segment: Segment) -> Tensor:
    """Return states [H, R n, h] as [R, H, n, h]."""
    rows: Tensor = states.unflatten(1, (segment.rows, segment.length)).transpose(0, 1)
    return rows


def _softmax_product(
    query: Tensor, key: Tensor, value: Tensor, scaling: float | None, *, causal: bool
) -> tuple[Tensor, Tensor]:
    """Return softmax(q kᵀ · scaling) v [B, H, n, h] and the logarithm of its normaliser."""
    if query.device.type == "cpu" and query.shape[-1] == value.shape[-1]:
        product: tuple[Tensor, Tensor] = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query, key, value, 0.0, causal, scale=scaling
        )
        return product
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    scores = (query @ key.transpose(-1, -2)).float() * scale
    if causal:
        ones = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device)
        scores = scores.masked_fill(ones.triu(1), -torch.inf)
    normaliser = scores.logsumexp(-1)
    weights = (scores - normaliser.unsqueeze(-1)).exp().to(value.dtype)
    return weights @ value, normaliser


class _NarrowedCall:
    """Hooks that let a module compute some positions only; the output of all others is 0."""

    def __init__(self, positions: Tensor) -> None:
        self._positions = positions
        self._length = 0

    def narrow(self, _module: nn.Module, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
        states = args[0]
        self._length = states.shape[1]
        return (states[:, self._positions], *args[1:]), kwargs

    def widen(self, _module: nn.Module, _args: Args, _kwargs: Kwargs, output: Any) -> Tensor:
        if not isinstance(output, Tensor):
            raise NotImplementedError("The last feed-forward part returns more than one tensor.")
        wide = output.new_zeros(1, self._length, output.shape[-1])
        wide[:, self._positions] = output
        return wide
