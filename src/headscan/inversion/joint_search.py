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
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headscan.inversion.certificate import Residual, exchanges
from headscan.inversion.continuous import Descent, descend
from headscan.inversion.decoders import Decoder
from headscan.inversion.readout import ReadoutSums, read_text
from headscan.inversion.reconstruction import Reconstruction, accepts
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
        cut: any slice; its output [T', w'] may be pooled or lack positions.
        length: T.
        known: tokens that are given, by position.
        tolerance: largest relative residual that counts as found.
        allowed: the vocabulary to choose from.

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
            tokens.tolist(), evaluations, compared, stopped=stopped, notes=tuple(self.residual_of.notes), residual=residual
        )  # fmt: skip

    def _read(self) -> tuple[Tensor, Tensor, list[Tensor]]:
        """From what a readout reads to where no exchange helps."""
        guesses, scores = read_tokens(
            self.cut, self.target, self.length, known=self.known, allowed=self.allowed, seed=self.seed, progress=self.progress
        )  # fmt: skip
        return self._exchanged(guesses.unique(dim=0), self._ranked(scores), self.settings, last=False)

    def _ranked(self, scores: Tensor) -> list[Tensor]:
        """At each position the tokens that may be returned, the likeliest first."""
        order = scores.argsort(dim=-1, descending=True, stable=True)
        return list(order if self.allowed is None else order[:, : int(self.allowed.sum())])

    def _attempt(self, search: JointSearch, seed: int, *, last: bool) -> tuple[Tensor, Tensor, list[Tensor]]:
        return self._exchanged(*self._start(search, seed), search, last=last)

    def _exchanged(
        self, states: Tensor, lists: list[Tensor], search: JointSearch, *, last: bool
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
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
        lists = self._ranked(scores)
        states = torch.stack([*rows, torch.stack([names[0] for names in lists])])
        for place, token in self.known.items():
            states[:, place] = token
        return states.unique(dim=0), lists

    def _all_pairs(self, states: Tensor, best: Tensor, lists: list[Tensor]) -> tuple[Tensor, Tensor]:
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


# ---- Reading all tokens of a prompt at once, and again near what was read: starts for the joint search.
#
# Where the output of every position is given, a linear readout (`headscan.inversion.readout`) tells which tokens fit each. Fitted
# on other texts it must see the token through whatever any context adds; fitted on texts that differ from a guess in a part of
# their tokens it sees it through what nearly this context adds, which is known by then. So the guess is read, and the readout
# fitted again around it, some rounds: deep in an encoder, where gradients lead astray, that is the nearer start.

# Tokens of a fit, at most and at least; between them 8 for each feature and each number of a vector.
MOST_TOKENS, LEAST_TOKENS = 6144, 512
# Fits at most; the share of a guess at which each text of a later fit has other tokens; half of those are drawn from so many of
# the position's list, the others from the whole vocabulary; texts run together.
ROUNDS, EXCHANGED, LISTED, BATCH = 4, 0.4, 64, 64


def can_read(cut: SlicedModel, length: int) -> bool:
    """Whether the slice gives the output of every position."""
    return cut.slice.pool is None and cut.kept(length) == list(range(length))


@torch.no_grad()
def read_tokens(
    cut: SlicedModel, target: Float[Tensor, "T w"], length: int, *, known: dict[int, int] | None = None,
    allowed: Bool[Tensor, " V"] | None = None, seed: int = 0, progress: Progress | None = None,
) -> tuple[Int[Tensor, "n T"], Float[Tensor, "T V"]]:  # fmt: skip
    """Guess all tokens of a prompt from its outputs [T, w'] at a slice for which `can_read`: the guesses, the last one first,
    and the scores of all tokens in the last fit.

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
            outputs = cut.states(inputs_embeds=vectors).float()
            sums.update(vectors[:, free].flatten(0, 1), outputs[:, free].flatten(0, 1))
        scores = sums.solve(cut.vectors).scores(cut.vectors, goal)
        if allowed is not None:
            scores = scores.masked_fill(~allowed.to(device), float("-inf"))
        guess = scores.argmax(-1).cpu()
        for place, token in known.items():
            guess[place] = token
        if any(torch.equal(guess, earlier) for earlier in guesses):
            break
        guesses.append(guess)
        if progress:
            progress("reading all tokens", number + 1, ROUNDS, "fits")
        lists = scores.topk(min(LISTED, len(choice)), -1).indices.cpu()
        rows = _around(guess, lists, choice, _tokens(cut), generator)
    return torch.stack(guesses[::-1]).to(device), scores


def _tokens(cut: SlicedModel) -> int:
    return min(MOST_TOKENS, max(LEAST_TOKENS, 8 * (cut.width + cut.vectors.shape[1])))


def _elsewhere(cut: SlicedModel, length: int, choice: Tensor, generator: torch.Generator) -> Tensor:
    count = max(2, _tokens(cut) // length)
    ids = read_text(cut, None, count // 2 * length)
    written = ids[: len(ids) // length * length].reshape(-1, length)
    drawn = choice[torch.randint(0, len(choice), (count - len(written), length), generator=generator)]
    return torch.cat([written, drawn])


def _around(guess: Tensor, lists: Tensor, choice: Tensor, tokens: int, generator: torch.Generator) -> Tensor:
    count, length = max(2, tokens // len(guess)), len(guess)
    near = lists[torch.arange(length), torch.randint(0, lists.shape[1], (count, length), generator=generator)]
    far = choice[torch.randint(0, len(choice), (count, length), generator=generator)]
    other = torch.where(torch.rand(count, length, generator=generator) < 0.5, near, far)
    return torch.where(torch.rand(count, length, generator=generator) < EXCHANGED, other, guess)
