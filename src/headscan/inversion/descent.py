"""Continuous inversion: gradient descent on vectors until the slice gives the target, then decoding to tokens.

*Indirect*: the embeddings e [T, d] are moved by the gradient of ||O(e) - O*||, and decoded. *Direct*: vectors a [T, V]
over the vocabulary are moved, with e = a W; the token is the largest entry. The gradient by a lies in the column space
of W, so what the start has in the null space of W^T (V - d dimensions) never changes; with a random start its extreme
entries win the argmax whatever was learned. `null_space=False` projects it away (a W W^+).

*Sequential*: one token at a time, the tokens before it committed. What the source calls sequential feeds each token
alone, without the tokens before it and at position 0, against an output that was computed with them: that target cannot
be reached. Here the prefix found so far stands before the vector.

Source of the methods: Badger, "Language Modeling and Discrete Encodings" (blbadger.github.io); the preset "seed" has its
optimiser, schedule, start and masks, and none of the remedies.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headscan.inversion.decoders import Decoder
from headscan.inversion.losses import relative
from headscan.inversion.optimisation import Descended, Optimisation
from headscan.inversion.presets import Descent
from headscan.model.slicing import SlicedModel
from headscan.model.slicing.prefix import Prefix
from headscan.run import BadInput, Progress

__all__ = ["Descended", "descend", "refuse_sequential"]


def descend(
    cut: SlicedModel, target: Float[Tensor, "B kept w"], length: int, settings: Descent | None = None, *,
    allowed: Bool[Tensor, "*B V"] | None = None, decode_with: Float[Tensor, "V e"] | None = None,
    progress: Progress | None = None,
) -> Descended:  # fmt: skip
    """Find tokens whose output is near the target, by gradients.

    Args:
        cut: any slice, causal or not.
        target: [B, T', w'] outputs wanted.
        length: T, the number of tokens to find.
        settings: how.
        allowed: bool [V], the vocabulary to decode to, or [B, V], that of each prompt.
        decode_with: [V, e], another table to decode with than the slice's own.
        progress: told the steps made.

    Raises:
        BadInput: sequential settings for a slice that is not causal, or does not give the output of every position.
    """
    settings = settings or Descent()
    decoder = Decoder(cut.vectors if decode_with is None else decode_with, allowed, settings.mask)
    if not settings.sequential:
        return Optimisation(cut, target, length, settings, decoder).run(progress)
    refuse_sequential(cut, [length])
    prefix = Prefix(cut, torch.zeros(len(target), 0, dtype=torch.int64, device=target.device))
    parts: list[Descended] = []
    for place in range(length):
        one = replace(settings, seed=settings.seed + place)
        parts.append(Optimisation(_NextPosition(prefix), target[:, place : place + 1], 1, one, decoder).run())
        if place + 1 < length:
            prefix.extend(parts[-1].tokens)
        if progress:
            progress("tokens by gradient", place + 1, length, "tokens")
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


def refuse_sequential(cut: SlicedModel, lengths: list[int]) -> None:
    """Raise BadInput for a slice of which some position's output is not given, or sees later tokens."""
    if not cut.causal or cut.slice.pool is not None or any(cut.kept(one) != list(range(one)) for one in lengths):
        raise BadInput(
            "Inverting one token after another needs a causal slice that gives the output of every position; leave "
            "'sequential' off."
        )


class _NextPosition:
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
