"""Joint search: several tokens at once, where no output tells one of them alone.

For slices without a causal mask, and for hidden tokens, whose own outputs are not given. From a start (a linear readout, where
the output of every position is given; else continuous inversion, many restarts) one token at a time is exchanged for the best
of a list of candidates, the list growing up to the whole vocabulary; every exchange is a run of the real model on real tokens.
Where that ends in a dead end, it begins again from a longer descent: deep encoders need many steps, shallow ones few. Pairs of
positions are searched exhaustively where the budget allows. A result is verified like any other; not finding one proves
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headscan.inversion.certificate import Residual, exchanges
from headscan.inversion.continuous import descend
from headscan.inversion.decoders import Decoder
from headscan.inversion.prior import can_read, read_tokens
from headscan.inversion.reconstruction import Descent, Reconstruction, accepts
from headscan.model.slicing import SlicedModel
from headscan.run import Option, Progress, Settings


@dataclass(frozen=True, kw_only=True)
class JointSearch(Settings):
    """How to search several tokens together.

    >>> JointSearch(restarts=2, steps=40).budget
    200000
    """

    budget: Annotated[int, Option("Candidates (runs of a whole prompt) altogether.", low=1)] = 200_000
    restarts: Annotated[int, Option("Starts of the continuous inversion; each gives a beam.", low=1)] = 4
    steps: Annotated[int, Option("Gradient steps of each start.", low=0)] = 200
    longer: Annotated[
        tuple[int, ...], Option("How much longer the descents of later attempts are.", low=1, python=True)
    ] = (4, 12)
    width: Annotated[
        int, Option("Candidates a position in the first sweep; one without progress quadruples it.", low=1, python=True)
    ] = 64
    beam: Annotated[int, Option("States kept between sweeps.", low=1, python=True)] = 3
    read: Annotated[
        bool, Option("Start from a linear readout, where the output of every position is given.", python=True)
    ] = True
    pairs: Annotated[bool, Option("Search all pairs of two hidden positions within the budget.", python=True)] = True


def joint(
    cut: SlicedModel, target: Float[Tensor, "kept w"], length: int, search: JointSearch | None = None, *,
    known: dict[int, int] | None = None, tolerance: float = 1e-4, allowed: Bool[Tensor, " V"] | None = None, seed: int = 0,
    progress: Progress | None = None,
) -> Reconstruction:  # fmt: skip
    """Search the tokens of one prompt together.

    Args:
        cut: any slice; its output may be pooled or lack positions.
        target: [T', w'].
        length: T.
        search: how.
        known: tokens that are given, by position.
        tolerance: largest relative residual that counts as found.
        allowed: bool [V].
        seed: of the starts.
        progress: told the candidates tried.

    Returns:
        The tokens with the residual of their output and what they were compared with. `stopped` says that the budget ended.
    """
    work = _Exchange(cut, target, length, search or JointSearch(), known or {}, tolerance, allowed, seed, progress)
    return work.search()


class _Exchange:
    """One call of `joint`."""

    def __init__(
        self, cut: SlicedModel, target: Tensor, length: int, settings: JointSearch, known: dict[int, int], tolerance: float,
        allowed: Tensor | None, seed: int, progress: Progress | None,
    ) -> None:  # fmt: skip
        self.cut, self.target, self.length, self.settings, self.known = cut, target, length, settings, known
        self.tolerance, self.allowed, self.seed, self.progress = tolerance, allowed, seed, progress
        self.residual_of = Residual(cut, target, settings.budget)
        self.free = [place for place in range(length) if place not in known]

    def search(self) -> Reconstruction:
        """Attempts, each from a longer descent than the last, until one fits."""
        given, longer = self.settings, self.settings.longer if self.settings.steps else ()
        if given.read and self.free and can_read(self.cut, self.length):
            states, best, lists = self._read()
            longer = (1, *longer) if given.steps else ()
        else:
            states, best, lists = self._attempt(given, self.seed, last=not longer)
        for number, times in enumerate(longer):
            if accepts(float(best[0]), self.tolerance) or self.residual_of.left <= 0 or not self.free:
                break
            few = given.restarts if times == 1 else max(1, given.restarts // 2)
            again = replace(given, steps=times * given.steps, restarts=few)
            tried = self._attempt(again, self.seed + 100 * (1 + number), last=number == len(longer) - 1)
            if float(tried[1][0]) < float(best[0]):
                states, best, lists = tried
        if not accepts(float(best[0]), self.tolerance) and given.pairs and len(self.free) == 2:
            states, best = self._all_pairs(states, best, lists)
        tokens, residual = states[0], float(best[0])
        evaluations, stopped = self.residual_of.count, self.residual_of.left <= 0
        compared = None
        if accepts(residual, self.tolerance):
            compared = exchanges(self.residual_of, tokens, self.free, lists, residual, tolerance=self.tolerance)
        return Reconstruction(
            tokens.tolist(),
            evaluations,
            compared,
            stopped=stopped,
            notes=tuple(self.residual_of.notes),
            residual=residual,
        )

    def _read(self) -> tuple[Tensor, Tensor, list[Tensor]]:
        """From what a readout reads to where no exchange helps."""
        found = read_tokens(
            self.cut,
            self.target,
            self.length,
            known=self.known,
            allowed=self.allowed,
            seed=self.seed,
            progress=self.progress,
        )
        order = found.scores.argsort(dim=-1, descending=True, stable=True)
        if self.allowed is not None:
            order = order[:, : int(self.allowed.sum())]
        return self._exchanged(found.guesses.unique(dim=0), list(order), self.settings, last=False)

    def _attempt(self, search: JointSearch, seed: int, *, last: bool) -> tuple[Tensor, Tensor, list[Tensor]]:
        """From one set of starts to where no exchange helps: states and residuals, best first, and the lists used."""
        return self._exchanged(*self._start(search, seed), search, last=last)

    def _exchanged(
        self, states: Tensor, lists: list[Tensor], search: JointSearch, *, last: bool
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Exchanges from these states until none helps."""
        residual_of = self.residual_of
        best = residual_of(states)
        keep = best.argsort()[: search.beam]
        states, best = states[keep], best[keep]
        width, vocabulary = search.width, self.cut.vocabulary_size
        # The lists of a long vocabulary are tried to the end in the last attempt only: a longer descent is cheaper.
        widest = vocabulary if last else min(vocabulary, 4 * search.width)
        while self.free and not accepts(float(best[0]), self.tolerance) and residual_of.left > 0:
            before = float(best[0])
            # The position whose exchange helps most is not known, so that all are tried, in turn.
            for place in self.free:
                states, best = _exchange(residual_of, states, best, place, lists[place][:width], search.beam)
                if self.progress:
                    self.progress("joint search", residual_of.count, search.budget, "candidates")
                if accepts(float(best[0]), self.tolerance) or residual_of.left <= 0:
                    break
            if float(best[0]) > 0.999 * before:
                if width >= widest:
                    break
                width = min(4 * width, widest)
        return states, best, lists

    def _start(self, search: JointSearch, seed: int) -> tuple[Tensor, list[Tensor]]:
        """Token rows to start from, and for each position all tokens, the likeliest first."""
        cut, allowed = self.cut, self.allowed
        rows = []
        scores = torch.zeros(self.length, cut.vocabulary_size, device=cut.lens.device)
        decoder = Decoder(cut.vectors, allowed)
        for number in range(search.restarts if search.steps else 0):
            settings = Descent(loss="l2", steps=search.steps, check_every=0, seed=seed + number)
            found = descend(cut, self.target[None], self.length, settings, progress=self.progress)
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
        for place, token in self.known.items():
            states[:, place] = token
        return states.unique(dim=0), list(order)

    def _all_pairs(self, states: Tensor, best: Tensor, lists: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Every pair of tokens at two positions, likeliest first, until one fits or the budget ends."""
        one, two = self.free
        residual_of = self.residual_of
        for token in lists[one]:
            if residual_of.left <= 0:
                break
            rows = states[:1].repeat(len(lists[two]), 1)
            rows[:, one], rows[:, two] = token, lists[two]
            values = residual_of(rows[: residual_of.left])
            low, index = values.min(0)
            if float(low) < float(best[0]):
                states, best = rows[index][None], low[None]
            if self.progress:
                self.progress("joint search", residual_of.count, residual_of.budget, "candidates")
            if accepts(float(best[0]), self.tolerance):
                break
        return states, best


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
