"""Joint search: several tokens at once, where no output tells one of them alone.

For slices without a causal mask, and for hidden tokens, whose own outputs are not given. From a start (a linear readout, where
the output of every position is given; else gradient descents) one token at a time is exchanged for the best of a list of
candidates, the list growing up to the whole vocabulary; every exchange is a run of the real model on real tokens. Where that
ends in a dead end, it begins again from a longer descent: deep encoders need many steps, shallow ones few. A result is verified
like any other; not finding one proves nothing.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headscan.inversion.continuous import Decoder, Descent, descend
from headscan.inversion.readout import ReadoutSums, read_stories
from headscan.inversion.reconstruction import Reconstruction, Residual, accepts, compared_each, exchanges, relative
from headscan.model.slicing import SlicedModel
from headscan.run import Option, Progress, Settings

# Candidates a position in the first sweep (one without progress quadruples it), and states kept between sweeps.
WIDTH, BEAM = 64, 3

# A linear readout tells which tokens fit each output: a start for the search. Fitted on other texts it must see the token through
# whatever any context adds; fitted on texts that differ from a guess in a part of their tokens, through what nearly this context
# adds. So the guess is read, and the readout fitted again around it, some rounds: deep in an encoder that is the nearer start.

# Tokens of a fit, at most and at least; between them 8 for each feature and each number of a vector.
MOST_TOKENS, LEAST_TOKENS = 6144, 512
# Fits at most; the share of a guess at which each text of a later fit has other tokens; half of those are drawn from so many of
# the position's list, the others from the whole vocabulary; texts run together.
ROUNDS, EXCHANGED, LISTED, BATCH = 4, 0.4, 64, 64


@dataclass(frozen=True, kw_only=True)
class JointSearch(Settings):
    """How to search several tokens together."""

    budget: Annotated[int, Option("Candidates (runs of a whole prompt) altogether.", low=1)] = 200_000
    restarts: Annotated[int, Option("Descents to start from; each gives a beam.", low=1)] = 4
    steps: Annotated[int, Option("Gradient steps of each descent.", low=1)] = 200
    longer: Annotated[tuple[int, ...], Option(
        "How much longer the descents of later attempts are.", low=1, python=True
    )] = (4, 12)  # fmt: skip


def joint(
    cut: SlicedModel, target: Float[Tensor, "kept w"], length: int, search: JointSearch | None = None, *,
    known: dict[int, int] | None = None, tolerance: float = 1e-4, allowed: Bool[Tensor, " V"] | None = None, seed: int = 0,
    progress: Progress | None = None,
) -> Reconstruction:  # fmt: skip
    """Search the tokens of one prompt of `length` tokens together; the slice may be pooled or lack positions.

    `known` tokens are given, by position; `tolerance` is the largest relative residual that counts as found. `stopped` of what
    is returned says that the budget ended.
    """
    return _Exchange(cut, target, length, search or JointSearch(), known or {}, tolerance, allowed, seed, progress).search()


@dataclass
class _Start:
    """Prompts from which tokens are exchanged, the best first, with their residuals and each position's candidates."""

    states: Int[Tensor, "n T"]
    best: Float[Tensor, " n"]
    lists: list[Tensor]  # of each position the tokens that may be returned, the likeliest first


class _Exchange:
    """One call of `joint`."""

    def __init__(
        self, cut: SlicedModel, target: Tensor, length: int, settings: JointSearch, known: dict[int, int], tolerance: float,
        allowed: Tensor | None, seed: int, progress: Progress | None,
    ) -> None:  # fmt: skip
        self.cut, self.target, self.length, self.settings, self.known = cut, target, length, settings, known
        self.tolerance, self.allowed, self.seed, self.progress = tolerance, allowed, seed, progress
        self.residual_of = Residual(cut, target, settings.budget, progress)
        self.free = [place for place in range(length) if place not in known]
        self.whole = cut.slice.pool is None and cut.kept(length) == list(range(length))  # every position's output is given

    def search(self) -> Reconstruction:
        few, longer = max(1, self.settings.restarts // 2), self.settings.longer
        attempts = [(self.settings.restarts, 1), *((few, times) for times in longer)]
        # A linear readout is the first start where the slice gives the output of every position.
        found = self._exchanged(self._read(), last=False) if self.free and self.whole else None
        for number, (restarts, times) in enumerate(attempts, start=0 if found is None else 1):
            if found is not None and (self._fits(found.best) or self.residual_of.left <= 0 or not self.free):
                break
            tried = self._exchanged(self._descended(restarts, times, self.seed + 100 * number), last=times == attempts[-1][1])
            if found is None or float(tried.best[0]) < float(found.best[0]):
                found = tried
        assert found is not None
        residual, tokens, compared = float(found.best[0]), found.states[0], None
        evaluations, stopped = self.residual_of.count, self.residual_of.left <= 0
        if self._fits(found.best):
            compared = exchanges(self.residual_of, tokens, self.free, found.lists, residual, tolerance=self.tolerance)
        return Reconstruction(
            tokens.tolist(), evaluations, compared, stopped=stopped, notes=tuple(self.residual_of.notes), residual=residual
        )  # fmt: skip

    def _fits(self, best: Tensor) -> bool:
        return accepts(float(best[0]), self.tolerance)

    def _apart(self, state: Tensor) -> list[float]:
        """The relative residual of each position's own output; where not all are given none tells, and each has zero."""
        return relative(self.cut.run(state[None]), self.target[None])[0].tolist() if self.whole else [0.0] * self.length

    def _ranked(self, scores: Tensor) -> list[Tensor]:
        if self.allowed is None:
            return list(scores.argsort(dim=-1, descending=True, stable=True))
        masked = scores.masked_fill(~self.allowed.to(scores.device), float("-inf"))
        return list(masked.argsort(dim=-1, descending=True, stable=True)[:, : int(self.allowed.sum())])

    @torch.no_grad()
    def _read(self) -> _Start:
        """Guess all tokens of a prompt from its outputs, until a guess gives them or is an earlier one; 4 fits at most."""
        cut, residual_of, generator = self.cut, self.residual_of, torch.Generator().manual_seed(self.seed)
        device, length = cut.lens.device, self.length
        choice = torch.arange(cut.vocabulary_size) if self.allowed is None else self.allowed.cpu().nonzero()[:, 0]
        count = max(2, min(MOST_TOKENS, max(LEAST_TOKENS, 8 * (cut.width + cut.vectors.shape[1]))) // length)
        ids = read_stories(cut, count // 2 * length)
        written = ids[: len(ids) // length * length].reshape(-1, length)
        drawn = choice[torch.randint(0, len(choice), (count - len(written), length), generator=generator)]
        rows, guesses, residuals = torch.cat([written, drawn]), list[Tensor](), list[Tensor]()
        residual_of.planned = len(self.free) * compared_each(len(choice), len(self.free))
        for number in range(ROUNDS):
            for place, token in self.known.items():
                rows[:, place] = token
            residual_of.planned += len(rows)
            sums = ReadoutSums(cut.width)
            for some in rows.to(device).split(BATCH):
                vectors = cut.embed(some)
                outputs = cut.states(inputs_embeds=vectors).float()
                sums.update(vectors[:, self.free].flatten(0, 1), outputs[:, self.free].flatten(0, 1))
                residual_of.tell(len(some), f"fit {number + 1}")
            lists = self._ranked(sums.solve(cut.vectors).scores(cut.vectors, self.target.to(device).float()))
            guess = torch.tensor([self.known.get(place, int(names[0])) for place, names in enumerate(lists)])
            if any(torch.equal(guess, earlier) for earlier in guesses):
                break
            guesses.append(guess)
            residuals.append(residual_of(guess[None].to(device)))
            if self._fits(residuals[-1]):
                break
            rows = _around(guess, torch.stack(lists)[:, :LISTED].cpu(), choice, count, generator)
        return _Start(torch.stack(guesses).to(device), torch.cat(residuals), lists)

    def _descended(self, restarts: int, times: int, seed: int) -> _Start:
        cut, allowed, rows = self.cut, self.allowed, []
        scores = torch.zeros(self.length, cut.vocabulary_size, device=cut.lens.device)
        decoder = Decoder(cut.vectors, allowed)
        for number in range(restarts):
            settings = Descent(loss="l2", steps=times * self.settings.steps, check_every=0, seed=seed + number)
            descended = descend(cut, self.target[None], self.length, settings, progress=self.progress)
            places = decoder.scores(descended.vectors[0]).argsort(dim=-1, descending=True)
            rows.append(places[:, 0])
            ranks = torch.empty_like(places, dtype=torch.float32)
            ranks.scatter_(1, places, torch.arange(places.shape[1], device=places.device).float().expand_as(places))
            # Reciprocal ranks: a token that one start likes goes before one that all find middling.
            scores += 1 / (1 + ranks)
        lists = self._ranked(scores)
        states = torch.stack([*rows, torch.stack([names[0] for names in lists])])
        for place, token in self.known.items():
            states[:, place] = token
        states = states.unique(dim=0)
        return _Start(states, self.residual_of(states), lists)

    def _exchanged(self, start: _Start, *, last: bool) -> _Start:
        """From a start to where no exchange helps."""
        residual_of, lists = self.residual_of, start.lists
        keep = start.best.argsort()[:BEAM]
        states, best = start.states[keep], start.best[keep]
        width, vocabulary = WIDTH, self.cut.vocabulary_size
        # The lists of a long vocabulary are tried to the end in the last attempt only: a longer descent is cheaper.
        widest = vocabulary if last else min(vocabulary, 4 * WIDTH)
        while self.free and not self._fits(best) and residual_of.left > 0:
            before = float(best[0])
            # The position whose exchange helps most is not known: all are tried, the one whose own output is farthest first.
            left = list(self.free)
            while left and not self._fits(best) and residual_of.left > 0:
                place = max(left, key=self._apart(states[0]).__getitem__)
                left.remove(place)
                states, best = _exchange(residual_of, states, best, place, lists[place][:width])
            if float(best[0]) > 0.999 * before:
                if width >= widest:
                    break
                width = min(4 * width, widest)
        return _Start(states, best, lists)


def _exchange(residual_of: Residual, states: Tensor, best: Tensor, place: int, tokens: Tensor) -> tuple[Tensor, Tensor]:
    tokens = tokens[: max(1, residual_of.left // len(states))]
    rows = states.repeat_interleave(len(tokens), 0)
    rows[:, place] = tokens.repeat(len(states))
    residual_of.planned += len(rows)
    every, values = torch.cat([states, rows]), torch.cat([best, residual_of(rows)])
    unique: dict[tuple[int, ...], int] = {}
    for index in values.argsort(stable=True).tolist()[: 4 * BEAM + len(states)]:
        unique.setdefault(tuple(every[index].tolist()), index)
    kept = list(unique.values())[:BEAM]
    return every[kept], values[kept]


def _around(guess: Tensor, lists: Tensor, choice: Tensor, count: int, generator: torch.Generator) -> Tensor:
    length = len(guess)
    near = lists[torch.arange(length), torch.randint(0, lists.shape[1], (count, length), generator=generator)]
    far = choice[torch.randint(0, len(choice), (count, length), generator=generator)]
    other = torch.where(torch.rand(count, length, generator=generator) < 0.5, near, far)
    return torch.where(torch.rand(count, length, generator=generator) < EXCHANGED, other, guess)
