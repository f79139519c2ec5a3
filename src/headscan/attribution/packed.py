"""Rows that differ from one prompt behind a shared start, run through a causal model as one sequence without padding.

A row that keeps the prompt's first p tokens needs only what stands behind them: p keys and values a layer are the
prompt's own. Rows of all lengths are laid end to end, so that every matrix product of the model is one large product;
attention alone keeps them apart. It is computed in two parts that are merged by their normalisers: own tokens (causal)
and the prompt's first p (all of them visible, one product for all rows of the same p, nothing copied). In the last
block only the positions that are read pass the feed-forward part.

Works for models whose attention goes through transformers' attention interface and whose positions are given as
`position_ids`; `Engine.share` tries it on the prompt and compares with the model's own numbers.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.activations import NewGELUActivation

from headscan.model import Lens
from headscan.model.recording import evaluating
from headscan.model.sites import first_tensor

NAME = "headscan-packed"
REFUSED = ("softcap", "s_aux", "position_bias", "encoder_hidden_states")
"""Options of attention functions that change the scores: where one is set, the packed way is not taken."""


@dataclass(frozen=True)
class Segment:
    """Rows [R, n, e] that share the prompt's first `prefix` tokens, read at `positions` of the whole row."""

    embeds: Tensor
    prefix: int
    positions: tuple[int, ...]

    @property
    def tokens(self) -> int:
        return self.embeds.shape[0] * self.embeds.shape[1]


class Packed:
    """A causal model with one prompt's keys and values, for rows that share its start.

    Raises NotImplementedError (in `record` and `logits`) where the model's attention cannot be taken apart so.
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
        alone = mlp is not None and mlp.calls == 1 and mlp.shape_from is None and mlp.where == "output"
        self._last_mlp: nn.Module | None = mlp.module if mlp is not None and alone else None
        self._gelus = [module for module in lens.model.modules() if isinstance(module, NewGELUActivation)]
        self._block = -1

    def record(self, embeds: Tensor, positions: Sequence[int]) -> Tensor:
        """Keep the keys and values of the prompt [T, e]; its logits [P, V] at `positions`."""
        self._recording, self._layers = True, {}
        try:
            logits = self.logits([Segment(embeds[None], 0, tuple(positions))])[0][0]
        finally:
            self._recording = False
        if len(self._layers) != self.lens.depth:
            raise NotImplementedError("The attention of some block does not go through the attention interface.")
        return logits

    def logits(self, segments: Sequence[Segment]) -> list[Tensor]:
        """Logits [R, P, V] of each segment's rows, all in one pass."""
        device = segments[0].embeds.device
        joined = torch.cat([segment.embeds.flatten(0, 1) for segment in segments])[None]
        places, wanted, at = [], [], 0
        for segment in segments:
            rows, length = segment.embeds.shape[:2]
            places.append(torch.arange(segment.prefix, segment.prefix + length).repeat(rows))
            starts = at + length * torch.arange(rows)
            wanted.append((starts[:, None] + torch.tensor(segment.positions) - segment.prefix).flatten())
            at += rows * length
        index = torch.cat(wanted).to(device)
        options = dict(self._options) | ({"logits_to_keep": index} if self._keeps else {})
        self._segments, self._block = segments, -1
        with self._installed(index):
            output = self.model(inputs_embeds=joined, position_ids=torch.cat(places)[None].to(device), **options).logits
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
                stack.callback(self._last_mlp.register_forward_pre_hook(partial(_narrowed, index, shape)).remove)
                stack.callback(self._last_mlp.register_forward_hook(partial(_widened, index, shape)).remove)
            config._attn_implementation = NAME
            stack.callback(setattr, config, "_attn_implementation", before)
            yield

    # ---- attention

    def _attend(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None,
        scaling: float | None = None, **options: Any,
    ) -> tuple[Tensor, None]:  # fmt: skip
        """Attention of packed rows: query [1, H, N, h], key and value [1, K, N, h], K a divisor of H."""
        layer = getattr(module, "layer_idx", None)
        window = options.get("sliding_window")
        longest = max(segment.prefix + segment.embeds.shape[1] for segment in self._segments)
        strange = attention_mask is not None or any(options.get(name) is not None for name in REFUSED)
        if layer is None or strange or (window is not None and window < longest):
            raise NotImplementedError("The attention of this model has masks or biases of its own.")
        self._block += 1
        heads = query.shape[1]
        if key.shape[1] != heads:
            key, value = (part.repeat_interleave(heads // part.shape[1], 1) for part in (key, value))
        if self._recording:
            self._layers[layer] = (key.contiguous(), value.contiguous())
        only_last = not self._recording and self._last_mlp is not None and self._block == self.lens.depth - 1
        made = query.new_zeros if only_last else query.new_empty
        out = made(1, query.shape[2], heads, value.shape[-1])
        at = 0
        for segment in self._segments:
            rows, length = segment.embeds.shape[:2]
            part = slice(at, at + rows * length)
            q, k, v = (x[0, :, part].unflatten(1, (rows, length)).transpose(0, 1) for x in (query, key, value))
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


def _softmax_product(query: Tensor, key: Tensor, value: Tensor, scaling: float | None, *, causal: bool) -> tuple[Tensor, Tensor]:
    """softmax(q kᵀ · scaling) v [B, H, n, h] and the logarithm of its normaliser [B, H, n]."""
    if query.device.type == "cpu" and query.shape[-1] == value.shape[-1]:
        product: tuple[Tensor, Tensor] = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query, key, value, 0.0, causal, scale=scaling
        )
        return product
    scores = (query @ key.transpose(-1, -2)).float() * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(hidden, -torch.inf)
    normaliser = scores.logsumexp(-1)
    return (scores - normaliser.unsqueeze(-1)).exp().to(value.dtype) @ value, normaliser


def _narrowed(index: Tensor, shape: list[torch.Size], module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    shape[:] = [inputs[0].shape]
    return (inputs[0][:, index], *inputs[1:])


def _widened(index: Tensor, shape: list[torch.Size], module: nn.Module, inputs: Any, output: Any) -> Tensor:
    narrow = first_tensor(output)
    if narrow is None or not isinstance(output, Tensor):
        raise NotImplementedError("The last feed-forward part returns more than one tensor.")
    wide = narrow.new_zeros(1, shape[0][1], narrow.shape[-1])
    wide[:, index] = narrow
    return wide
