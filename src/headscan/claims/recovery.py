"""What a descent and a search find again of prompts whose outputs are given: the tool behind the claims on inversion."""

from __future__ import annotations

from typing import Literal, TypeAlias

import torch
from torch import Tensor

from headscan.inversion import exact
from headscan.model.slicing import SlicedModel

__all__ = ["Scored", "allowed_words", "hits", "positions", "search_hidden", "search_shown"]

Scored: TypeAlias = Literal["all", "hidden", "shown", "whole", "set", "five", "five anywhere"]
AT_ONCE = 4096  # rows of a batch of candidates
FITS = 1e-4  # relative residual of outputs that count as equal


def positions(ready: SlicedModel, length: int, scored: Scored) -> list[int]:
    """The positions that are scored: those whose own output is not given (hidden), those whose is, or all."""
    kept = set(ready.kept(length))
    hidden = [place for place in range(length) if place not in kept]
    if scored == "hidden" or (scored in ("five", "five anywhere", "set") and hidden):
        return hidden
    return sorted(kept) if scored == "shown" else list(range(length))


def hits(tokens: Tensor, top: Tensor | None, ids: Tensor, places: list[int], scored: Scored) -> Tensor:
    """Hits [prompts, places] (0 or 1; one column for whole prompts) of the answers [prompts, T] against the ids.

    "set": the token stands anywhere in the answer; "five": among the best five at its place; "five anywhere": among the best
    five of any place.
    """
    true = ids[:, places]
    if scored == "set":
        found = (true[:, :, None] == tokens[:, None, :]).any(-1)
    elif scored == "five" and top is not None:
        found = (top[:, places] == true[..., None]).any(-1)
    elif scored == "five anywhere" and top is not None:
        found = (true[:, :, None] == top.flatten(1)[:, None, :]).any(-1)
    else:
        found = tokens[:, places] == true
    return (found.all(-1, keepdim=True) if scored == "whole" else found).double()


def allowed_words(vocabulary: int, ids: Tensor, extra: int, seed: int) -> Tensor:
    """Bool [prompts, V]: of each prompt [prompts, T] its own tokens and so many random others."""
    allowed = torch.zeros(len(ids), vocabulary, dtype=torch.bool).scatter_(1, ids, True)
    others = torch.rand(allowed.shape, generator=torch.Generator().manual_seed(seed)).masked_fill(allowed, -1.0)
    return allowed.scatter_(1, others.topk(extra, dim=1).indices, True)


def search_shown(ready: SlicedModel, target: Tensor, allowed: Tensor | None) -> Tensor:
    """Tokens [prompts, T] by exact search from left to right, of all tokens or of each prompt's own [prompts, V]; every output
    must be given."""
    if allowed is None:
        return torch.tensor([one.tokens for one in exact(ready, list(target))])
    return torch.tensor(
        [exact(ready, [goal], allowed=own)[0].tokens for goal, own in zip(target, allowed, strict=True)]
    )


@torch.no_grad()
def search_hidden(ready: SlicedModel, target: Tensor, start: Tensor, allowed: Tensor | None, sweeps: int = 3) -> Tensor:
    """Tokens [prompts, T] by exchange: from a start, every allowed token is tried at one place after another, the hidden
    places first, and the best is kept. A prompt is done when its outputs fit, or a sweep changes nothing; the truth plays no
    part in it. Cost: at most sweeps · T · V runs a prompt, mostly V.
    """
    tokens = start.clone()
    every = torch.arange(ready.vocabulary_size)
    kept = set(ready.kept(tokens.shape[1]))
    order = sorted(range(tokens.shape[1]), key=lambda place: (place in kept, place))
    for row, goal in enumerate(target):
        words = every if allowed is None else every[allowed[row]]
        best = float((ready.run(tokens[row : row + 1]) - goal).norm())
        for place in order * sweeps:
            if best <= FITS * float(goal.norm()):
                break
            tried = tokens[row].repeat(len(words), 1)
            tried[:, place] = words
            apart = torch.cat([(ready.run(part) - goal).flatten(1).norm(dim=1) for part in tried.split(AT_ONCE)])
            best = float(apart.min())
            tokens[row, place] = words[apart.argmin()]
    return tokens
