"""Joint search: all tokens of a prompt together, from starts and by exchanging single tokens.

A linear readout shows which tokens fit each output: a start for the search. Fitted on other texts
it must see the token through whatever any context adds; fitted on texts that differ from a guess in
a part of their tokens, through what nearly this context adds. So the guess is read, and the readout
fitted again around it, some rounds: deep in an encoder that is the nearer start. Later starts are
gradient descents.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headscan.inversion.continuous import Decoder, Descent, descend
from headscan.inversion.exchanges import PromptResiduals, compared_each, exchanges
from headscan.inversion.readout import ReadoutSums
from headscan.inversion.readout_fit import read_stories
from headscan.inversion.reconstruction import Reconstruction, accepts, relative
from headscan.model.slicing import SlicedModel
from headscan.run import Option, Progress, Settings

WIDTH = 64  # candidates a position in the first sweep; one without progress quadruples it
BEAM = 3  # prompts that are kept between sweeps
PROGRESS = 0.999  # a sweep helps if it lowers the residual below this share

# Tokens of a fit, at most and at least; between them 8 for each feature and each number of a
# vector.
MOST_TOKENS = 6144
LEAST_TOKENS = 512
ROUNDS = 4  # fits at most
# Share of a guess at which each text of a later fit has other tokens; half of those are drawn from
# the first LISTED of the position's list, the others from the whole vocabulary.
EXCHANGED = 0.4
LISTED = 64
BATCH = 64  # texts run together


@dataclass(frozen=True, kw_only=True)
class JointSearch(Settings):
    """The settings of a search of several tokens together."""

    budget: Annotated[int, Option("Candidates (runs of a whole prompt) altogether.", low=1)] = (
        200_000
    )
    restarts: Annotated[int, Option("Descents to start from; each gives a beam.", low=1)] = 4
    steps: Annotated[int, Option("Gradient steps of each descent.", low=1)] = 200
    longer: Annotated[
        tuple[int, ...],
        Option("How much longer the descents of later attempts are.", low=1, python=True),
    ] = (4, 12)


def joint(
    cut: SlicedModel,
    target: Float[Tensor, "kept w"],
    length: int,
    search: JointSearch | None = None,
    *,
    known: dict[int, int] | None = None,
    tolerance: float = 1e-4,
    allowed: Bool[Tensor, " V"] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Reconstruction:
    """Search the tokens of one prompt together; `stopped` of the result says that the budget ended.

    Args:
        cut: any slice; it may be pooled or lack positions.
        target: the output of the prompt.
        length: tokens of the prompt.
        search: the settings of the search.
        known: tokens that are given, by position.
        tolerance: the largest relative residual that counts as equal.
        allowed: the tokens that may be returned; None: all.
        seed: seed of the starts.
        progress: called as the work goes on.
    """
    work = _JointWork(
        cut,
        target,
        length,
        search or JointSearch(),
        known=known or {},
        tolerance=tolerance,
        allowed=allowed,
        seed=seed,
        progress=progress,
    )
    return work.search()


@dataclass
class _Beam:
    """Prompts from which tokens are exchanged.

    Attributes:
        prompts: the prompts; after exchanges the best comes first.
        residuals: of each.
        lists: of each position the tokens that may be returned, the likeliest first.
    """

    prompts: Int[Tensor, "n T"]
    residuals: Float[Tensor, " n"]
    lists: list[Tensor]

    @property
    def best(self) -> float:
        return float(self.residuals[0])


@dataclass
class _JointWork:
    """One call of `joint`.

    Attributes:
        free: the positions whose tokens are not known.
        complete: whether the output of every position is given.
    """

    cut: SlicedModel
    target: Tensor
    length: int
    settings: JointSearch
    known: dict[int, int]
    tolerance: float
    allowed: Tensor | None
    seed: int
    progress: Progress | None

    def __post_init__(self) -> None:
        positions = list(range(self.length))
        budget = self.settings.budget
        self.residuals_of = PromptResiduals(self.cut, self.target, budget, self.progress)
        self.free = [position for position in positions if position not in self.known]
        self.complete = self.cut.slice.pool is None and self.cut.kept(self.length) == positions

    def search(self) -> Reconstruction:
        restarts = self.settings.restarts
        few = max(1, restarts // 2)
        attempts = [(restarts, 1), *((few, times) for times in self.settings.longer)]
        beam: _Beam | None = None
        if self.free and self.complete:  # a linear readout is the first start
            beam = self._exchanged(self._read(), last=False)
        first = 0 if beam is None else 1
        for number, (restarts, times) in enumerate(attempts, start=first):
            if beam is not None and (self._is_over(beam) or not self.free):
                break
            start = self._descended(restarts, times, self.seed + 100 * number)
            attempt = self._exchanged(start, last=times == attempts[-1][1])
            if beam is None or attempt.best < beam.best:
                beam = attempt
        assert beam is not None
        return self._reconstruction(beam)

    def _reconstruction(self, beam: _Beam) -> Reconstruction:
        evaluations = self.residuals_of.count
        stopped = self.residuals_of.left <= 0
        tokens = beam.prompts[0]
        compared = None
        if self._fits(beam):
            compared = exchanges(
                self.residuals_of,
                tokens,
                self.free,
                beam.lists,
                beam.best,
                tolerance=self.tolerance,
            )
        return Reconstruction(
            tokens.tolist(),
            evaluations,
            compared,
            stopped=stopped,
            residual=beam.best,
        )

    def _fits(self, beam: _Beam) -> bool:
        return accepts(beam.best, self.tolerance)

    def _is_over(self, beam: _Beam) -> bool:
        return self._fits(beam) or self.residuals_of.left <= 0

    def _residuals_at(self, prompt: Tensor) -> list[float]:
        """Return the relative residual of each position's own output; 0 where not all are given."""
        if not self.complete:
            return [0.0] * self.length
        return relative(self.cut.run(prompt[None]), self.target[None])[0].tolist()

    def _ranked(self, scores: Tensor) -> list[Tensor]:
        """Return for each position the tokens that may be returned, the largest score first."""
        if self.allowed is None:
            return list(scores.argsort(dim=-1, descending=True, stable=True))
        masked = scores.masked_fill(~self.allowed.to(scores.device), float("-inf"))
        order = masked.argsort(dim=-1, descending=True, stable=True)
        return list(order[:, : int(self.allowed.sum())])

    @torch.no_grad()
    def _read(self) -> _Beam:
        """Guess all tokens from the outputs, until a guess gives them or was made before.

        Each guess is read by a readout fitted to texts around the guess before it; 4 fits at most.
        """
        generator = torch.Generator().manual_seed(self.seed)
        device = self.cut.lens.device
        choice = torch.arange(self.cut.vocabulary_size)
        if self.allowed is not None:
            choice = self.allowed.cpu().nonzero()[:, 0]
        rows = self._first_texts(choice, generator)
        count = len(rows)
        compared = compared_each(len(choice), len(self.free))
        self.residuals_of.planned = len(self.free) * compared

        guesses: list[Tensor] = []
        residuals: list[Tensor] = []
        for number in range(ROUNDS):
            for position, token in self.known.items():
                rows[:, position] = token
            lists = self._fitted(rows, number + 1)
            best = dict(enumerate(int(tokens[0]) for tokens in lists))
            guess = torch.tensor([*(best | self.known).values()])
            if any(torch.equal(guess, earlier) for earlier in guesses):
                break
            guesses.append(guess)
            residuals.append(self.residuals_of(guess[None].to(device)))
            if accepts(float(residuals[-1][0]), self.tolerance):
                break
            near = torch.stack(lists)[:, :LISTED].cpu()
            rows = _texts_around(guess, near, choice, count, generator)
        return _Beam(torch.stack(guesses).to(device), torch.cat(residuals), lists)

    def _first_texts(self, choice: Tensor, generator: torch.Generator) -> Int[Tensor, "n T"]:
        """Return texts for the first fit: up to half of them written, the others drawn."""
        tokens = max(LEAST_TOKENS, 8 * (self.cut.width + self.cut.vectors.shape[1]))
        count = max(2, min(MOST_TOKENS, tokens) // self.length)
        story = read_stories(self.cut, count // 2 * self.length)
        written = story[: len(story) // self.length * self.length].reshape(-1, self.length)
        shape = (count - len(written), self.length)
        drawn = choice[torch.randint(0, len(choice), shape, generator=generator)]
        return torch.cat([written, drawn])

    def _fitted(self, rows: Tensor, number: int) -> list[Tensor]:
        """Fit a readout to texts; return each position's tokens, the best fitting first."""
        cut = self.cut
        self.residuals_of.planned += len(rows)
        sums = ReadoutSums(cut.width)
        for part in rows.to(cut.lens.device).split(BATCH):
            vectors = cut.embed(part)
            outputs = cut.states(inputs_embeds=vectors).float()
            free_vectors = vectors[:, self.free].flatten(0, 1)
            sums.update(free_vectors, outputs[:, self.free].flatten(0, 1))
            self.residuals_of.report(len(part), f"fit {number}")
        target = self.target.to(cut.lens.device).float()
        return self._ranked(sums.solve(cut.vectors).scores(cut.vectors, target))

    def _descended(self, restarts: int, times: int, seed: int) -> _Beam:
        """Return the prompts that gradient descents end at, and one of their joint ranking."""
        cut = self.cut
        decoder = Decoder(cut.vectors, self.allowed)
        prompts = []
        scores = torch.zeros(self.length, cut.vocabulary_size, device=cut.lens.device)
        for number in range(restarts):
            steps = times * self.settings.steps
            settings = Descent(loss="l2", steps=steps, check_every=0, seed=seed + number)
            target = self.target[None]
            descended = descend(cut, target, self.length, settings, progress=self.progress)
            order = decoder.scores(descended.vectors[0]).argsort(dim=-1, descending=True)
            prompts.append(order[:, 0])
            count = torch.arange(order.shape[1], device=order.device).float()
            ranks = torch.empty_like(order, dtype=torch.float32)
            ranks.scatter_(1, order, count.expand_as(order))
            # Reciprocal ranks: a token that one start likes goes before one that all find middling.
            scores += 1 / (1 + ranks)
        lists = self._ranked(scores)
        prompts.append(torch.stack([tokens[0] for tokens in lists]))
        rows = torch.stack(prompts)
        for position, token in self.known.items():
            rows[:, position] = token
        rows = rows.unique(dim=0)
        return _Beam(rows, self.residuals_of(rows), lists)

    def _exchanged(self, start: _Beam, *, last: bool) -> _Beam:
        """Exchange tokens until no exchange helps; return the best prompts.

        The lists of a long vocabulary are tried to the end in the last attempt only: a longer
        descent is cheaper.
        """
        order = start.residuals.argsort()[:BEAM]
        beam = _Beam(start.prompts[order], start.residuals[order], start.lists)
        vocabulary = self.cut.vocabulary_size
        widest = vocabulary if last else min(vocabulary, 4 * WIDTH)
        width = WIDTH
        while self.free and not self._is_over(beam):
            residual = beam.best
            beam = self._swept(beam, width)
            if beam.best > PROGRESS * residual:
                if width >= widest:
                    break
                width = min(4 * width, widest)
        return beam

    def _swept(self, beam: _Beam, width: int) -> _Beam:
        """Exchange the token of each position once.

        The position whose exchange helps most is not known: all are tried, the one whose own output
        is farthest first.
        """
        left = list(self.free)
        while left and not self._is_over(beam):
            residuals = self._residuals_at(beam.prompts[0])
            position = max(left, key=residuals.__getitem__)
            left.remove(position)
            beam = self._tried_at(beam, position, beam.lists[position][:width])
        return beam

    def _tried_at(self, beam: _Beam, position: int, tokens: Tensor) -> _Beam:
        """Try tokens at a position of each prompt; return the best prompts."""
        count = len(beam.prompts)
        tokens = tokens[: max(1, self.residuals_of.left // count)]
        rows = beam.prompts.repeat_interleave(len(tokens), 0)
        rows[:, position] = tokens.repeat(count)
        self.residuals_of.planned += len(rows)
        prompts = torch.cat([beam.prompts, rows])
        residuals = torch.cat([beam.residuals, self.residuals_of(rows)])
        unique: dict[tuple[int, ...], int] = {}
        for index in residuals.argsort(stable=True).tolist()[: 4 * BEAM + count]:
            unique.setdefault(tuple(prompts[index].tolist()), index)
        best = list(unique.values())[:BEAM]
        return _Beam(prompts[best], residuals[best], beam.lists)


def _texts_around(
    guess: Int[Tensor, " T"],
    near: Int[Tensor, "T L"],
    choice: Int[Tensor, " C"],
    count: int,
    generator: torch.Generator,
) -> Int[Tensor, "count T"]:
    """Return texts that differ from a guess in a part of their tokens."""
    length = len(guess)
    shape = (count, length)
    columns = torch.randint(0, near.shape[1], shape, generator=generator)
    listed = near[torch.arange(length), columns]
    drawn = choice[torch.randint(0, len(choice), shape, generator=generator)]
    exchange = torch.where(torch.rand(shape, generator=generator) < 0.5, listed, drawn)
    return torch.where(torch.rand(shape, generator=generator) < EXCHANGED, exchange, guess)
