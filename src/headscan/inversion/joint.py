"""Joint search: several tokens at once, where no output tells one of them alone.

For slices without a causal mask, and for hidden tokens, whose own outputs are not given. From a start (continuous
inversion, many restarts) one token at a time is exchanged for the best of a list of candidates, the list growing up to
the whole vocabulary; every exchange is a run of the real model on real tokens. Where that ends in a dead end, it begins
again from a longer descent: deep encoders need many steps, shallow ones few. Pairs of positions are searched
exhaustively where the budget allows. A result is verified like any other; not finding one proves nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from headscan.errors import BadInput
from headscan.inversion.certificate import Residual, exchanges
from headscan.inversion.decoders import Decoder
from headscan.inversion.descent import Descent, descend
from headscan.inversion.table import Progress
from headscan.model.slicing import SlicedModel

__all__ = ["Joint", "JointSearch", "joint"]


@dataclass(frozen=True)
class JointSearch:
    """How to search jointly.

    Attributes:
        budget: candidates (runs of a whole prompt) altogether.
        restarts: starts of the continuous inversion; each gives a beam.
        steps: gradient steps of each.
        longer: how much longer the descents are of the attempts after the first, which are made while none has succeeded.
        width: candidates a position in the first sweep; each sweep without progress tries four times as many.
        beam: states kept between sweeps.
        pairs: search all pairs of two hidden positions where that fits the budget.
        seed: of the starts.
    """

    budget: int = 200_000
    restarts: int = 4
    steps: int = 200
    longer: tuple[int, ...] = (4, 12)
    width: int = 64
    beam: int = 3
    pairs: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.budget, self.restarts, self.width, self.beam, *self.longer, 1) < 1 or self.steps < 0:
            raise BadInput("A joint search needs a budget, restarts, a width and a beam of at least one.")


@dataclass
class Joint:
    """What was found for one prompt: tokens [T], the largest relative residual of an output, candidates tried."""

    tokens: Tensor
    residual: float
    evaluations: int
    exhausted: bool
    rivals: list[list[int]] = field(default_factory=list)
    margin: float = float("inf")
    checked: str = ""
    notes: list[str] = field(default_factory=list)


def joint(
    cut: SlicedModel,
    target: Tensor,
    length: int,
    search: JointSearch | None = None,
    *,
    known: dict[int, int] | None = None,
    tolerance: float = 1e-4,
    allowed: Tensor | None = None,
    progress: Progress | None = None,
) -> Joint:
    """Search the tokens of one prompt together.

    Args:
        cut: any slice; its output may be pooled or lack positions.
        target: [T', w'].
        length: T.
        search: how.
        known: tokens that are given, by position.
        tolerance: largest relative residual that counts as found.
        allowed: bool [V].
        progress: called with (name, done, all).
    """
    search, known = search or JointSearch(), known or {}
    residual_of = Residual(cut, target, search.budget)
    free = [place for place in range(length) if place not in known]
    states, best, lists = _attempt(cut, target, length, search, residual_of, allowed, known, tolerance, progress)
    for number, times in enumerate(search.longer if search.steps else ()):
        if float(best[0]) <= tolerance or residual_of.left <= 0 or not free:
            break
        last = number == len(search.longer) - 1
        again = replace(
            search,
            longer=() if last else (1,),
            steps=times * search.steps,
            restarts=max(1, search.restarts // 2),
            seed=search.seed + 100 * (1 + number),
        )
        tried = _attempt(cut, target, length, again, residual_of, allowed, known, tolerance, progress)
        if float(tried[1][0]) < float(best[0]):
            states, best, lists = tried
    if float(best[0]) > tolerance and search.pairs and len(free) == 2:
        states, best = _all_pairs(residual_of, states, best, free, lists, tolerance, progress)
    found = Joint(states[0], float(best[0]), residual_of.count, residual_of.left > 0, notes=residual_of.notes)
    if found.residual <= tolerance:
        found.rivals, found.margin, found.checked = exchanges(residual_of, found.tokens, free, lists, found.residual)
    else:
        found.rivals = [[] for _ in range(length)]
    return found


def _attempt(
    cut: SlicedModel,
    target: Tensor,
    length: int,
    search: JointSearch,
    residual_of: Residual,
    allowed: Tensor | None,
    known: dict[int, int],
    tolerance: float,
    progress: Progress | None,
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """From one set of starts to where no exchange helps: states and residuals, best first, and the lists used."""
    free = [place for place in range(length) if place not in known]
    states, lists = _start(cut, target, length, search, allowed, known)
    best = residual_of(states)
    keep = best.argsort()[: search.beam]
    states, best = states[keep], best[keep]
    width, vocabulary = search.width, cut.vocabulary_size
    # The lists of a long vocabulary are tried to the end in the last attempt only: a longer descent is cheaper.
    widest = vocabulary if not (search.longer and search.steps) else min(vocabulary, 4 * search.width)
    while free and float(best[0]) > tolerance and residual_of.left > 0:
        before = float(best[0])
        # The position whose exchange helps most is not known, so that all are tried, in turn.
        for place in free:
            states, best = _exchange(residual_of, states, best, place, lists[place][:width], search.beam)
            if progress:
                progress("candidates", residual_of.count, search.budget)
            if float(best[0]) <= tolerance or residual_of.left <= 0:
                break
        if float(best[0]) > 0.999 * before:
            if width >= widest:
                break
            width = min(4 * width, widest)
    return states, best, lists


def _start(
    cut: SlicedModel, target: Tensor, length: int, search: JointSearch, allowed: Tensor | None, known: dict[int, int]
) -> tuple[Tensor, list[Tensor]]:
    """Token rows to start from, and for each position all tokens, the likeliest first."""
    settings = Descent(loss="l2", steps=max(1, search.steps), check=0)
    rows = []
    scores = torch.zeros(length, cut.vocabulary_size, device=cut.lens.device)
    decoder = Decoder(cut.vectors, allowed)
    for number in range(search.restarts if search.steps else 0):
        found = descend(cut, target[None], length, replace(settings, seed=search.seed + number))
        places = decoder.scores(found.vectors[0]).argsort(dim=-1, descending=True)
        rows.append(places[:, 0])
        ranks = torch.empty_like(places, dtype=torch.float32)
        ranks.scatter_(1, places, torch.arange(places.shape[1], device=places.device).float().expand_as(places))
        # Reciprocal ranks: a token that one start likes goes before one that all find middling.
        scores += 1 / (1 + ranks)
    if allowed is not None:
        scores = scores.masked_fill(~allowed.to(scores.device), float("-inf"))
    order = scores.argsort(dim=-1, descending=True, stable=True)
    if allowed is not None:
        order = order[:, : int(allowed.sum())]
    states = torch.stack([*rows, order[:, 0]])
    for place, token in known.items():
        states[:, place] = token
    return states.unique(dim=0), list(order)


def _exchange(
    residual_of: Residual, states: Tensor, best: Tensor, place: int, tokens: Tensor, beam: int
) -> tuple[Tensor, Tensor]:
    """The best states after every exchange of one token by one of `tokens`."""
    tokens = tokens[: max(1, residual_of.left // len(states))]
    rows = states.repeat_interleave(len(tokens), 0)
    rows[:, place] = tokens.repeat(len(states))
    every, values = torch.cat([states, rows]), torch.cat([best, residual_of(rows)])
    order = values.argsort(stable=True)
    unique: list[int] = []
    seen: set[tuple[int, ...]] = set()
    for index in order.tolist()[: 4 * beam + len(states)]:
        key = tuple(every[index].tolist())
        if key not in seen:
            seen.add(key)
            unique.append(index)
        if len(unique) == beam:
            break
    return every[unique], values[unique]


def _all_pairs(
    residual_of: Residual,
    states: Tensor,
    best: Tensor,
    free: list[int],
    lists: list[Tensor],
    tolerance: float,
    progress: Progress | None,
) -> tuple[Tensor, Tensor]:
    """Every pair of tokens at two positions, likeliest first, until one fits or the budget ends."""
    one, two = free
    for token in lists[one]:
        if residual_of.left <= 0:
            break
        rows = states[:1].repeat(len(lists[two]), 1)
        rows[:, one], rows[:, two] = token, lists[two]
        values = residual_of(rows[: residual_of.left])
        low, index = values.min(0)
        if float(low) < float(best[0]):
            states, best = rows[index][None], low[None]
        if progress:
            progress("candidates", residual_of.count, residual_of.budget)
        if float(best[0]) <= tolerance:
            break
    return states, best
