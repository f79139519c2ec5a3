"""Search for prompts whose outputs are given, and what counts as found: for claims on inversion."""

from typing import Literal, TypeAlias

import torch
from torch import Tensor

from headscan.inversion import exact
from headscan.model import Lens
from headscan.model.slicing import Slice, SlicedModel

Scored: TypeAlias = Literal["all", "hidden", "shown", "whole", "set", "five", "five anywhere"]
"""Which tokens of a prompt are scored, and what counts as found; see `positions` and `hits`."""
CANDIDATES_AT_ONCE = 4096  # rows of a batch of candidates
LARGEST_FIT = 1e-4  # relative residual of outputs that count as equal


def is_causal(lens: Lens) -> bool:
    """Return whether an output depends on earlier tokens only.

    Statements on language models presuppose it.
    """
    return Slice().on(lens).causal


def positions(ready: SlicedModel, length: int, scored: Scored) -> list[int]:
    """Return the positions of a prompt that are scored.

    "hidden": those whose own output is not given; "shown": those whose output is given; else all,
    but for "set" and the two of "five" the hidden ones, where there are any.
    """
    shown = set(ready.kept(length))
    hidden = [position for position in range(length) if position not in shown]
    if scored == "hidden" or (scored in ("five", "five anywhere", "set") and hidden):
        return hidden
    return sorted(shown) if scored == "shown" else list(range(length))


def hits(
    tokens: Tensor, top: Tensor | None, ids: Tensor, scored_positions: list[int], scored: Scored
) -> Tensor:
    """Return which tokens were found: [prompts, positions], 0 or 1; one column for whole prompts.

    "set": the token stands anywhere in the answer; "five": it is among the best five at its
    position; "five anywhere": among the best five of any position.

    Args:
        tokens: the answers [prompts, T].
        top: the best five tokens [prompts, T, 5]; None where they are unknown.
        ids: the prompts [prompts, T].
    """
    true = ids[:, scored_positions]
    if scored == "set":
        is_found = (true[:, :, None] == tokens[:, None, :]).any(-1)
    elif scored == "five" and top is not None:
        is_found = (top[:, scored_positions] == true[..., None]).any(-1)
    elif scored == "five anywhere" and top is not None:
        is_found = (true[:, :, None] == top.flatten(1)[:, None, :]).any(-1)
    else:
        is_found = tokens[:, scored_positions] == true
    if scored == "whole":
        is_found = is_found.all(-1, keepdim=True)
    return is_found.double()


def allowed_tokens(vocabulary: int, ids: Tensor, extra: int, seed: int) -> Tensor:
    """Return bool [prompts, V]: the tokens of each prompt [prompts, T] and `extra` others."""
    allowed = torch.zeros(len(ids), vocabulary, dtype=torch.bool).scatter_(1, ids, True)
    generator = torch.Generator().manual_seed(seed)
    priorities = torch.rand(allowed.shape, generator=generator).masked_fill(allowed, -1.0)
    return allowed.scatter_(1, priorities.topk(extra, dim=1).indices, True)


def search_shown(ready: SlicedModel, target: Tensor, allowed: Tensor | None) -> Tensor:
    """Return tokens [prompts, T] by exact search from left to right; every output must be given.

    Args:
        target: the outputs [prompts, T, d].
        allowed: the tokens that are tried for each prompt [prompts, V]; None: all.
    """
    if allowed is None:
        return torch.tensor([result.tokens for result in exact(ready, list(target))])
    rows = []
    for prompt_target, prompt_allowed in zip(target, allowed, strict=True):
        rows.append(exact(ready, [prompt_target], allowed=prompt_allowed)[0].tokens)
    return torch.tensor(rows)


@torch.no_grad()
def search_hidden(
    ready: SlicedModel, target: Tensor, start: Tensor, allowed: Tensor | None, sweeps: int = 3
) -> Tensor:
    """Return tokens [prompts, T] by exchange, from a start.

    Every allowed token is tried at one position after another, the hidden positions first, and the
    best is kept. A prompt is finished when its outputs fit, or a sweep changes nothing; the true
    tokens play no part in it. Cost: at most sweeps · T · V runs a prompt, mostly V.
    """
    tokens = start.clone()
    vocabulary = torch.arange(ready.vocabulary_size)
    shown = set(ready.kept(tokens.shape[1]))
    order = sorted(range(tokens.shape[1]), key=lambda position: (position in shown, position))
    for row, prompt_target in enumerate(target):
        candidates = vocabulary if allowed is None else vocabulary[allowed[row]]
        tokens[row] = _exchanged(ready, prompt_target, tokens[row], candidates, order * sweeps)
    return tokens


def _exchanged(
    ready: SlicedModel, target: Tensor, start: Tensor, candidates: Tensor, order: list[int]
) -> Tensor:
    """Return the tokens [T] of one prompt after the best exchange at each position of `order`."""
    tokens = start.clone()
    length = len(tokens)
    best = float((ready.run(tokens[None]) - target).norm())
    fit = LARGEST_FIT * float(target.norm())
    unchanged = 0
    for position in order:
        if best <= fit or unchanged == length:
            break
        tried = tokens.repeat(len(candidates), 1)
        tried[:, position] = candidates
        distances = torch.cat(
            [
                (ready.run(part) - target).flatten(1).norm(dim=1)
                for part in tried.split(CANDIDATES_AT_ONCE)
            ]
        )
        best = float(distances.min())
        token = candidates[distances.argmin()]
        unchanged = unchanged + 1 if token == tokens[position] else 0
        tokens[position] = token
    return tokens
