"""Continuous inversion one token at a time: the vector at a position is moved, the tokens before it are committed.

What the source calls sequential feeds each token alone, without the tokens before it and at position 0, against an output
that was computed with them: that target cannot be reached. Here the prefix found so far stands before the vector.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from headscan.errors import BadInput
from headscan.inversion.losses import relative
from headscan.model.slicing import SlicedModel
from headscan.model.slicing.prefix import Prefix

if TYPE_CHECKING:
    from headscan.inversion.descent import Descended, Descent

__all__ = ["descend_in_order"]


class _Next:
    """The output at the next position as a slice of one token, for the descent that serves whole prompts."""

    def __init__(self, prefix: Prefix) -> None:
        self.prefix, self.vectors = prefix, prefix.cut.vectors

    def run(
        self, input_ids: Tensor | None = None, *, inputs_embeds: Tensor | None = None, grad: bool = False
    ) -> Tensor:
        """[B, 1, w'] of ids [B, 1] or vectors [B, 1, e]; B is a multiple of the prompts (restarts)."""
        vectors = inputs_embeds
        if vectors is None:
            assert input_ids is not None
            vectors = self.prefix.cut.embed(input_ids)
        prompts = len(self.prefix.ids)
        rows = torch.arange(prompts, device=vectors.device).repeat_interleave(len(vectors) // prompts)
        return self.prefix.outputs(rows, vectors[:, 0], grad=grad)[:, None]


def descend_in_order(
    cut: SlicedModel,
    target: Tensor,
    length: int,
    settings: Descent,
    *,
    allowed: Tensor | None = None,
    decode_with: Tensor | None = None,
    progress: Callable[[str, int, int | None], None] | None = None,
) -> Descended:
    """What `descend` does with `sequential`: the same settings at each position, `steps` steps a token.

    Raises:
        BadInput: the slice is not causal, or does not give the output of every position.
    """
    from headscan.inversion.descent import Descended, descend

    if not cut.causal or cut.slice.pool is not None or cut.kept(length) != list(range(length)):
        raise BadInput(
            "Inverting one token after another needs a causal slice that gives the output of every position; leave "
            "'sequential' off."
        )
    prefix = Prefix(cut, torch.zeros(len(target), 0, dtype=torch.int64, device=target.device))
    parts: list[Descended] = []
    for place in range(length):
        view: Any = _Next(prefix)
        one = descend(
            view, target[:, place : place + 1], 1, replace(settings, sequential=False, seed=settings.seed + place),
            allowed=allowed, decode_with=decode_with,
        )  # fmt: skip
        parts.append(one)
        if place + 1 < length:
            prefix.extend(one.tokens)
        if progress:
            progress("tokens", place + 1, length)
    tokens = torch.cat([one.tokens for one in parts], dim=1)
    return Descended(
        tokens,
        torch.cat([one.top for one in parts], dim=1),
        torch.cat([one.vectors for one in parts], dim=1),
        torch.stack([one.loss for one in parts]).sum(0),
        relative(cut.run(tokens), target),
        sum(one.steps for one in parts),
        sum(one.passes for one in parts),
    )
