"""One attention call of a model in training: logits, entropies, and the weight on each position."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from headscan.training.monitor.scene import Scene, mean_of

CELLS = 2**22
"""Attention scores that are held at a time."""

MASKED = -1e4
"""An additive mask at or below this hides a key."""


class AttentionCall(NamedTuple):
    """Numbers of the first window's scores of an attention call.

    maximum: by head, the largest logit.
    entropy: by head, the mean entropy over that of uniform weights.
    received: by position, the mean weight on it, over heads and the queries that see it.
    seen: by position, the number of these queries.
    norms: the mean norms of queries, keys and values.
    """

    maximum: Float[Tensor, " H"]
    entropy: Float[Tensor, " H"]
    received: Float[Tensor, " T"]
    seen: Float[Tensor, " T"]
    norms: dict[str, Tensor]


def look_at(
    query: Float[Tensor, "B H T e"],
    key: Float[Tensor, "B K T e"],
    value: Float[Tensor, "B K T e"],
    mask: Tensor | None,
    scaling: float | None,
    causal: bool,
    real: Bool[Tensor, " T"] | None = None,
) -> AttentionCall:
    """Return the numbers of one attention call (K divides H), in pieces, so that no T x T matrix is
    held.

    Args:
        real: which tokens are no padding; None: all of them.
    """
    q = query[:1].detach().float()
    k = key[:1].detach().float()
    v = value[:1].detach().float()
    norms = {
        name: mean_of(torch.linalg.vector_norm(vectors, dim=-1), real)
        for name, vectors in (("query", q), ("key", k), ("value", v))
    }
    heads, length, width = q.shape[1:]
    k = k.repeat_interleave(heads // k.shape[1], dim=1)
    keys = k.shape[2]
    if scaling is None:
        scaling = width**-0.5

    maximum = q.new_full((heads,), -torch.inf)
    entropy = q.new_zeros(heads)
    rows = q.new_zeros(())
    received = q.new_zeros(keys)
    seen = q.new_zeros(keys)
    size = max(1, CELLS // (heads * keys))
    for start in range(0, length, size):
        queries = slice(start, start + size)
        scores = q[:, :, queries] @ k.transpose(-1, -2) * scaling
        allowed = _allowed(scores, queries, length, mask, causal, real)
        scores = scores.masked_fill(~allowed, -torch.inf)
        weights = torch.softmax(scores, -1).nan_to_num()
        visible = allowed.float().sum(-1)
        # The entropy of a query that sees one key alone is 0 and says nothing.
        several = (visible > 1).float()
        entropies = -torch.special.xlogy(weights, weights).sum(-1)
        maximum = torch.maximum(maximum, scores.amax((0, 2, 3)))
        entropy = entropy + (several * entropies / visible.clamp(min=2).log()).sum((0, 2))
        rows = rows + several.sum()
        received = received + weights.mean(1).sum((0, 1))
        seen = seen + allowed.float().sum((0, 1, 2))
    return AttentionCall(
        maximum, entropy / rows.clamp(min=1), received / seen.clamp(min=1), seen, norms
    )


def _allowed(
    scores: Tensor,
    queries: slice,
    length: int,
    mask: Tensor | None,
    causal: bool,
    real: Tensor | None,
) -> Tensor:
    """Return which keys the queries of a piece of the scores [1, H, n, keys] see, [1, 1, n, keys].

    Args:
        length: number of all queries.
    """
    count, keys = scores.shape[2:]
    allowed = torch.ones_like(scores[:, :1], dtype=torch.bool)
    if causal:
        key_positions = torch.arange(keys, device=scores.device)
        query_positions = torch.arange(queries.start, queries.start + count, device=scores.device)
        allowed &= key_positions <= query_positions[:, None] + keys - length
    if mask is not None and mask.ndim == 4:
        piece = mask[:1, :1, queries, :keys]
        allowed &= piece if piece.dtype == torch.bool else piece > MASKED
    elif mask is not None and mask.ndim == 2:
        allowed &= mask[:1, None, None, :keys].bool()
    if real is not None:
        allowed &= real & real[queries, None]
    return allowed


@contextmanager
def attention_calls(scene: Scene, take: Callable[[str, AttentionCall], Any]) -> Iterator[None]:
    """Call `take(block, call)` for every attention call of the scene's model in this context; the
    kernel of the model stays the same.

    This works for models whose attention goes through transformers' interface; other models' calls
    are not taken.
    """
    name = getattr(scene.lens.model.config, "_attn_implementation", None) or "eager"
    kernel = ALL_ATTENTION_FUNCTIONS.get(name)
    kernel = getattr(kernel, "inner", kernel)  # a step that broke off has left its own

    def attend(
        module: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None = None,
        *args: Any,
        **options: Any,
    ) -> Any:
        block = scene.owner.get(id(module))
        if block:
            causal = getattr(module, "is_causal", True) and (mask is None or mask.ndim == 2)
            with torch.no_grad(), torch.autocast(query.device.type, enabled=False):
                real = None
                if query.shape[2] == key.shape[2]:
                    real = scene.real(block, (len(query), query.shape[2]))
                real_of_first = None if real is None else real[0]
                scaling = options.get("scaling")
                take(block, look_at(query, key, value, mask, scaling, causal, real_of_first))
        run = kernel or sys.modules[type(module).__module__].eager_attention_forward
        return run(module, query, key, value, mask, *args, **options)

    attend.inner = kernel  # type: ignore[attr-defined]
    ALL_ATTENTION_FUNCTIONS[name] = attend
    try:
        yield
    finally:
        with suppress(KeyError):
            del ALL_ATTENTION_FUNCTIONS[name]
