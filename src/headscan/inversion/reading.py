"""Reading all tokens of a prompt at once, and again near what was read: starts for the joint search.

Where the output of every position is given, a linear readout (`headscan.inversion.readout`) tells which tokens fit each. Fitted
on other texts it must see the token through whatever any context adds; fitted on texts that differ from a guess in a part of
their tokens it sees it through what nearly this context adds, which is known by then. So the guess is read, and the readout
fitted again around it, some rounds: deep in an encoder, where gradients lead astray, that is the nearer start.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headscan.inversion.fitting import read_text
from headscan.inversion.readout import ReadoutSums
from headscan.model.slicing import SlicedModel
from headscan.run import Progress

__all__ = ["ReadTokens", "can_read", "read_tokens"]

TOKENS, LEAST = 6144, 512
"""Of a fit, at most and at least; between them 8 for each feature and each number of a vector."""
ROUNDS, EXCHANGED, LISTED = 4, 0.4, 64
"""Fits at most; the share of a guess at which each text of a later fit has other tokens; so many of a list are drawn from, for
half of them, the others from the whole vocabulary."""
BATCH = 64


@dataclass(frozen=True)
class ReadTokens:
    """What was read: guesses [n, T], and of the last fit the scores [T, V] of all tokens."""

    guesses: Int[Tensor, "n T"]
    scores: Float[Tensor, "T V"]


def can_read(cut: SlicedModel, length: int) -> bool:
    """Whether the slice gives the output of every position."""
    return cut.slice.pool is None and cut.kept(length) == list(range(length))


@torch.no_grad()
def read_tokens(
    cut: SlicedModel, target: Float[Tensor, "T w"], length: int, *, known: dict[int, int] | None = None,
    allowed: Bool[Tensor, " V"] | None = None, seed: int = 0, progress: Progress | None = None,
) -> ReadTokens:  # fmt: skip
    """Guess all tokens of a prompt from its outputs.

    Args:
        cut: a slice for which `can_read`.
        target: [T, w'].
        length: T.
        known: tokens that are given, by position.
        allowed: bool [V].
        seed: of the texts that are fitted on.
        progress: told the fits done.

    Cost: 4 fits at most, each a pass of 6,144 tokens (fewer in narrow models) and V e² products.
    """
    generator, device = torch.Generator().manual_seed(seed), cut.lens.device
    goal, known = target.to(device).float(), known or {}
    free = [place for place in range(length) if place not in known]
    choice = torch.arange(cut.vocabulary_size) if allowed is None else allowed.cpu().nonzero()[:, 0]
    rows = _elsewhere(cut, length, choice, generator)
    guesses: list[Tensor] = []
    scores = torch.zeros(length, cut.vocabulary_size, device=device)
    for number in range(ROUNDS):
        for place, token in known.items():
            rows[:, place] = token
        sums = ReadoutSums(cut.width)
        for some in rows.to(device).split(BATCH):
            vectors = cut.embed(some)
            sums.update(
                vectors[:, free].flatten(0, 1), cut.states(inputs_embeds=vectors).float()[:, free].flatten(0, 1)
            )
        scores = sums.solve(cut.vectors).scores(cut.vectors, goal)
        if allowed is not None:
            scores = scores.masked_fill(~allowed.to(device), float("-inf"))
        guess = scores.argmax(-1).cpu()
        for place, token in known.items():
            guess[place] = token
        if any(torch.equal(guess, one) for one in guesses):
            break
        guesses.append(guess)
        if progress:
            progress("reading all tokens", number + 1, ROUNDS, "fits")
        lists = scores.topk(min(LISTED, len(choice)), -1).indices.cpu()
        rows = _around(guess, lists, choice, _tokens(cut), generator)
    return ReadTokens(torch.stack(guesses[::-1]).to(device), scores)


def _tokens(cut: SlicedModel) -> int:
    return min(TOKENS, max(LEAST, 8 * (cut.width + cut.vectors.shape[1])))


def _elsewhere(cut: SlicedModel, length: int, choice: Tensor, generator: torch.Generator) -> Tensor:
    """Texts of this length: of the embedded sample, and of tokens drawn from the vocabulary."""
    count = max(2, _tokens(cut) // length)
    ids = read_text(cut, None, count // 2 * length)
    written = ids[: len(ids) // length * length].reshape(-1, length)
    drawn = choice[torch.randint(0, len(choice), (count - len(written), length), generator=generator)]
    return torch.cat([written, drawn])


def _around(guess: Tensor, lists: Tensor, choice: Tensor, tokens: int, generator: torch.Generator) -> Tensor:
    """Texts that differ from a guess in a part of their tokens."""
    count, length = max(2, tokens // len(guess)), len(guess)
    near = lists[torch.arange(length), torch.randint(0, lists.shape[1], (count, length), generator=generator)]
    far = choice[torch.randint(0, len(choice), (count, length), generator=generator)]
    other = torch.where(torch.rand(count, length, generator=generator) < 0.5, near, far)
    return torch.where(torch.rand(count, length, generator=generator) < EXCHANGED, other, guess)
