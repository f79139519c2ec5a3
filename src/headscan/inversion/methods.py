"""The inversion methods exact, joint (with its search), indirect and direct, and the one that
chooses among them.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Annotated, ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headscan.inversion import reconstruction as proof
from headscan.inversion.candidates import SearchTrace
from headscan.inversion.continuous import PRESETS, Decoder, Descent, Loss, Start, descend
from headscan.inversion.left_to_right import Search, exact, refuse_unordered
from headscan.inversion.readout import ReadoutSums, read_stories
from headscan.inversion.reconstruction import Reconstruction
from headscan.model.slicing import SlicedModel
from headscan.run import BadInput, Named, Option, Progress, Registry, Settings

# Candidates a position in the first sweep (one without progress quadruples it), and states kept
# between sweeps.
WIDTH = 64
BEAM = 3

# A linear readout tells which tokens fit each output: a start for the search. Fitted on other texts
# it must see the token through whatever any context adds; fitted on texts that differ from a guess
# in a part of their tokens, through what nearly this context adds. So the guess is read, and the
# readout fitted again around it, some rounds: deep in an encoder that is the nearer start.

# Tokens of a fit, at most and at least; between them 8 for each feature and each number of a
# vector.
MOST_TOKENS = 6144
LEAST_TOKENS = 512
# Fits at most; the share of a guess at which each text of a later fit has other tokens; half of
# those are drawn from so many of the position's list, the others from the whole vocabulary; texts
# run together.
ROUNDS = 4
EXCHANGED = 0.4
LISTED = 64
BATCH = 64


@dataclass(frozen=True, kw_only=True)
class JointSearch(Settings):
    """How to search several tokens together."""

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
    """Search the tokens of one prompt of `length` tokens together; the slice may be pooled or lack
    positions.

    `known` tokens are given, by position; `tolerance` is the largest relative residual that counts
    as found. `stopped` of what is returned says that the budget ended.
    """
    return _Exchange(
        cut,
        target,
        length,
        search or JointSearch(),
        known or {},
        tolerance,
        allowed,
        seed,
        progress,
    ).search()


@dataclass
class _Start:
    """Prompts from which tokens are exchanged, the best first, with their residuals and each
    position's candidates.
    """

    states: Int[Tensor, "n T"]
    best: Float[Tensor, " n"]
    lists: list[Tensor]  # of each position the tokens that may be returned, the likeliest first


class _Exchange:
    """One call of `joint`."""

    def __init__(
        self,
        cut: SlicedModel,
        target: Tensor,
        length: int,
        settings: JointSearch,
        known: dict[int, int],
        tolerance: float,
        allowed: Tensor | None,
        seed: int,
        progress: Progress | None,
    ) -> None:
        self.cut = cut
        self.target = target
        self.length = length
        self.settings = settings
        self.known = known
        self.tolerance = tolerance
        self.allowed = allowed
        self.seed = seed
        self.progress = progress
        self.residual_of = proof.Residual(cut, target, settings.budget, progress)
        self.free = [place for place in range(length) if place not in known]
        # every position's output is given
        self.whole = cut.slice.pool is None and cut.kept(length) == list(range(length))

    def search(self) -> Reconstruction:
        few = max(1, self.settings.restarts // 2)
        longer = self.settings.longer
        attempts = [(self.settings.restarts, 1), *((few, times) for times in longer)]
        # A linear readout is the first start where the slice gives the output of every position.
        found = self._exchanged(self._read(), last=False) if self.free and self.whole else None
        for number, (restarts, times) in enumerate(attempts, start=0 if found is None else 1):
            if found is not None and (
                self._fits(found.best) or self.residual_of.left <= 0 or not self.free
            ):
                break
            tried = self._exchanged(
                self._descended(restarts, times, self.seed + 100 * number),
                last=times == attempts[-1][1],
            )
            if found is None or float(tried.best[0]) < float(found.best[0]):
                found = tried
        assert found is not None
        residual = float(found.best[0])
        tokens = found.states[0]
        compared = None
        evaluations = self.residual_of.count
        stopped = self.residual_of.left <= 0
        if self._fits(found.best):
            compared = proof.exchanges(
                self.residual_of, tokens, self.free, found.lists, residual, tolerance=self.tolerance
            )
        return Reconstruction(
            tokens.tolist(),
            evaluations,
            compared,
            stopped=stopped,
            notes=tuple(self.residual_of.notes),
            residual=residual,
        )

    def _fits(self, best: Tensor) -> bool:
        return proof.accepts(float(best[0]), self.tolerance)

    def _apart(self, state: Tensor) -> list[float]:
        """The relative residual of each position's own output; where not all are given none tells,
        and each has zero.
        """
        return (
            proof.relative(self.cut.run(state[None]), self.target[None])[0].tolist()
            if self.whole
            else [0.0] * self.length
        )

    def _ranked(self, scores: Tensor) -> list[Tensor]:
        if self.allowed is None:
            return list(scores.argsort(dim=-1, descending=True, stable=True))
        masked = scores.masked_fill(~self.allowed.to(scores.device), float("-inf"))
        return list(
            masked.argsort(dim=-1, descending=True, stable=True)[:, : int(self.allowed.sum())]
        )

    @torch.no_grad()
    def _read(self) -> _Start:
        """Guess all tokens of a prompt from its outputs, until a guess gives them or is an earlier
        one; 4 fits at most.
        """
        cut = self.cut
        residual_of = self.residual_of
        generator = torch.Generator().manual_seed(self.seed)
        device = cut.lens.device
        length = self.length
        choice = (
            torch.arange(cut.vocabulary_size)
            if self.allowed is None
            else self.allowed.cpu().nonzero()[:, 0]
        )
        count = max(
            2, min(MOST_TOKENS, max(LEAST_TOKENS, 8 * (cut.width + cut.vectors.shape[1]))) // length
        )
        ids = read_stories(cut, count // 2 * length)
        written = ids[: len(ids) // length * length].reshape(-1, length)
        drawn = choice[
            torch.randint(0, len(choice), (count - len(written), length), generator=generator)
        ]
        rows = torch.cat([written, drawn])
        guesses = list[Tensor]()
        residuals = list[Tensor]()
        residual_of.planned = len(self.free) * proof.compared_each(len(choice), len(self.free))
        for number in range(ROUNDS):
            for place, token in self.known.items():
                rows[:, place] = token
            residual_of.planned += len(rows)
            sums = ReadoutSums(cut.width)
            for some in rows.to(device).split(BATCH):
                vectors = cut.embed(some)
                outputs = cut.states(inputs_embeds=vectors).float()
                sums.update(
                    vectors[:, self.free].flatten(0, 1), outputs[:, self.free].flatten(0, 1)
                )
                residual_of.tell(len(some), f"fit {number + 1}")
            lists = self._ranked(
                sums.solve(cut.vectors).scores(cut.vectors, self.target.to(device).float())
            )
            guess = torch.tensor(
                [self.known.get(place, int(names[0])) for place, names in enumerate(lists)]
            )
            if any(torch.equal(guess, earlier) for earlier in guesses):
                break
            guesses.append(guess)
            residuals.append(residual_of(guess[None].to(device)))
            if self._fits(residuals[-1]):
                break
            rows = _around(guess, torch.stack(lists)[:, :LISTED].cpu(), choice, count, generator)
        return _Start(torch.stack(guesses).to(device), torch.cat(residuals), lists)

    def _descended(self, restarts: int, times: int, seed: int) -> _Start:
        cut = self.cut
        allowed = self.allowed
        rows = []
        scores = torch.zeros(self.length, cut.vocabulary_size, device=cut.lens.device)
        decoder = Decoder(cut.vectors, allowed)
        for number in range(restarts):
            settings = Descent(
                loss="l2", steps=times * self.settings.steps, check_every=0, seed=seed + number
            )
            descended = descend(
                cut, self.target[None], self.length, settings, progress=self.progress
            )
            places = decoder.scores(descended.vectors[0]).argsort(dim=-1, descending=True)
            rows.append(places[:, 0])
            ranks = torch.empty_like(places, dtype=torch.float32)
            ranks.scatter_(
                1,
                places,
                torch.arange(places.shape[1], device=places.device).float().expand_as(places),
            )
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
        residual_of = self.residual_of
        lists = start.lists
        keep = start.best.argsort()[:BEAM]
        states = start.states[keep]
        best = start.best[keep]
        width = WIDTH
        vocabulary = self.cut.vocabulary_size
        # The lists of a long vocabulary are tried to the end in the last attempt only: a longer
        # descent is cheaper.
        widest = vocabulary if last else min(vocabulary, 4 * WIDTH)
        while self.free and not self._fits(best) and residual_of.left > 0:
            before = float(best[0])
            # The position whose exchange helps most is not known: all are tried, the one whose own
            # output is farthest first.
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


def _exchange(
    residual_of: proof.Residual, states: Tensor, best: Tensor, place: int, tokens: Tensor
) -> tuple[Tensor, Tensor]:
    tokens = tokens[: max(1, residual_of.left // len(states))]
    rows = states.repeat_interleave(len(tokens), 0)
    rows[:, place] = tokens.repeat(len(states))
    residual_of.planned += len(rows)
    every = torch.cat([states, rows])
    values = torch.cat([best, residual_of(rows)])
    unique: dict[tuple[int, ...], int] = {}
    for index in values.argsort(stable=True).tolist()[: 4 * BEAM + len(states)]:
        unique.setdefault(tuple(every[index].tolist()), index)
    kept = list(unique.values())[:BEAM]
    return every[kept], values[kept]


def _around(
    guess: Tensor, lists: Tensor, choice: Tensor, count: int, generator: torch.Generator
) -> Tensor:
    length = len(guess)
    near = lists[
        torch.arange(length), torch.randint(0, lists.shape[1], (count, length), generator=generator)
    ]
    far = choice[torch.randint(0, len(choice), (count, length), generator=generator)]
    other = torch.where(torch.rand(count, length, generator=generator) < 0.5, near, far)
    return torch.where(torch.rand(count, length, generator=generator) < EXCHANGED, other, guess)


# ---- The methods take outputs and give tokens.


@dataclass(frozen=True, kw_only=True)
class Problem:
    """What is to be inverted."""

    cut: SlicedModel
    targets: list[Float[Tensor, "kept w"]]  # the output of each prompt
    lengths: list[int]  # tokens of each prompt
    known: list[dict[int, int]]  # of each prompt the tokens that are given, by position
    allowed: Bool[Tensor, " V"] | None = None  # the vocabulary to choose from; None: all of it
    tolerance: float | None = None  # relative residual that counts as found; None: by precision
    certain: float | None = (
        None  # one that ends the search of a position at once; None: a tolerance that is given
    )
    seed: int = 0
    progress: Progress | None = None

    def __post_init__(self) -> None:
        # Below what rounding does, equal outputs cannot be told from unequal ones: a token would
        # look unique that is not.
        if self.tolerance is not None and self.tolerance < (least := proof.accepted(self.cut)):
            raise BadInput(
                f"--tolerance {self.tolerance:.2g} is less than rounding may do at "
                f"{self.cut.slice}: the least is {least:.2g}."
            )

    @property
    def accepted(self) -> float:
        return proof.accepted(self.cut) if self.tolerance is None else self.tolerance


@dataclass(frozen=True, kw_only=True)
class Method(Settings, Named, ABC):
    """A way from outputs to tokens. Its fields are its parameters: options of the command line."""

    def chosen(self, cut: SlicedModel, lengths: list[int], *, ordered: bool) -> "Method":
        """The method that is used for prompts of these lengths; BadInput for an output that it
        cannot invert. `ordered` says whether the observation tells positions apart.
        """
        return self

    @abstractmethod
    def solve(self, problem: Problem) -> list[Reconstruction]:
        """One reconstruction a prompt."""


METHODS: Registry[type[Method]] = Registry("method")
"""All inversion methods by name."""

_JOINT = JointSearch()


@METHODS.register("exact")
class Exact(Search, Method):
    """Token by token from left to right, every candidate being run: causal slices that give
    positions.

    Tokens before the first output given are searched jointly. Source: Nikolaou et al.,
    arXiv:2510.15511 (SipIt).
    """

    hidden: Annotated[
        JointSearch, Option("How tokens without an output of their own are searched.", python=True)
    ] = _JOINT

    def chosen(self, cut: SlicedModel, lengths: list[int], *, ordered: bool) -> Method:
        if not ordered:
            raise BadInput(
                "What is given carries no position (one vector stands for all of them), so it "
                "cannot be inverted token by token: use the method 'joint'."
            )
        refuse_unordered(cut)
        return self

    def solve(self, problem: Problem) -> list[Reconstruction]:
        if all(problem.cut.kept(length) == list(range(length)) for length in problem.lengths):
            return self._ordered(problem, problem.targets, None)
        return [
            self._hidden(problem, *pair)
            for pair in zip(problem.targets, problem.lengths, strict=True)
        ]

    def _ordered(
        self, problem: Problem, targets: list[Tensor], known: Tensor | None
    ) -> list[Reconstruction]:
        """All prompts in step, where every output after the known tokens is given."""
        traces = exact(
            problem.cut,
            targets,
            self,
            known=known,
            allowed=problem.allowed,
            tolerance=problem.tolerance,
            certain=problem.certain,
            seed=problem.seed,
            progress=problem.progress,
        )
        return [_reconstruction(trace) for trace in traces]

    def _hidden(self, problem: Problem, target: Tensor, length: int) -> Reconstruction:
        """A prompt whose outputs are given only at some positions: the hidden tokens jointly, the
        rest in order.
        """
        first = problem.cut.kept(length)[0]
        before = Reconstruction([], 0)
        if first > 0:
            before = joint(
                problem.cut.keeping("-1"),
                target[:1],
                first + 1,
                self.hidden,
                tolerance=problem.accepted,
                allowed=problem.allowed,
                seed=problem.seed,
                progress=problem.progress,
            )
        rest = target[1:] if first > 0 else target
        after = _reconstruction(SearchTrace())
        if len(rest):
            known = torch.tensor([before.tokens], dtype=torch.int64) if before.tokens else None
            after = self._ordered(problem, [rest], known)[0]
        absent = length - len(before.tokens) - len(after.tokens)  # what neither reaches has token 0
        compared = [
            *(before.compared or [proof.UNCOMPARED] * len(before.tokens)),
            *(after.compared or []),
        ]
        return replace(
            after,
            tokens=before.tokens + after.tokens + [0] * absent,
            evaluations=before.evaluations + after.evaluations,
            compared=compared + [proof.UNCOMPARED] * absent,
            per_token=None,
            stopped=before.stopped or after.stopped,
        )


def _reconstruction(trace: SearchTrace) -> Reconstruction:
    return Reconstruction(
        trace.tokens,
        sum(trace.evaluations),
        [step.evidence for step in trace.steps],
        trace.evaluations,
        stopped=bool(trace.failed) and not trace.exhausted,
        notes=tuple(trace.notes),
        passes=trace.passes,
    )


@METHODS.register("indirect")
class Indirect(Method):
    """Embeddings are moved by gradients until the output fits, then decoded; a field that is None
    is the preset's.
    """

    name: ClassVar[Literal["indirect", "direct"]] = "indirect"

    preset: Annotated[
        Literal["adam", "seed"], Option("Named settings; 'seed' is the published method, exactly.")
    ] = "adam"
    steps: Annotated[int | None, Option("Gradient steps. Default: the preset's.", low=1)] = None
    loss: Annotated[Loss | None, Option("Distance of outputs. Default: the preset's.")] = None
    init: Annotated[
        Start | None, Option("Begin at embedding scale, at zeros, or at noise (as published).")
    ] = None
    rate: Annotated[
        float | None, Option("First learning rate. Default: by optimiser.", above=0)
    ] = None

    def descent(self, seed: int) -> Descent:
        """The settings in full; a seed of 0 leaves the preset's own."""
        base = PRESETS[
            "seed-direct" if self.preset == "seed" and self.name == "direct" else self.preset
        ]
        given = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name != "preset"
        }
        changes = {name: value for name, value in given.items() if value is not None}
        return replace(base, method=self.name, seed=seed or base.seed, **changes)

    def solve(self, problem: Problem) -> list[Reconstruction]:
        """Prompts of one length are descended together."""
        settings = self.descent(problem.seed)
        found = dict[int, Reconstruction]()
        for length in sorted(set(problem.lengths)):
            rows = [row for row, own in enumerate(problem.lengths) if own == length]
            target = torch.stack([problem.targets[row] for row in rows])
            told = problem.progress
            descended = descend(
                problem.cut, target, length, settings, allowed=problem.allowed, progress=told
            )
            passes = descended.passes // len(rows)
            for row, tokens, top in zip(
                rows, descended.tokens.tolist(), descended.top.tolist(), strict=True
            ):
                found[row] = Reconstruction(tokens, descended.steps, passes=passes, top=top)
        return [found[row] for row in range(len(problem.lengths))]


@METHODS.register("direct")
class Direct(Indirect):
    """Vectors over the vocabulary are moved by gradients; the token is the largest entry.

    As published (preset 'seed') it fails by its random start, whose part in the null space of the
    embedding no gradient moves.
    """

    name: ClassVar[Literal["indirect", "direct"]] = "direct"


@METHODS.register("joint")
class Joint(JointSearch, Method):
    """All tokens of a prompt together: gradient descents, then exchanges of one token after
    another; any slice.
    """

    def solve(self, problem: Problem) -> list[Reconstruction]:
        return [
            joint(
                problem.cut,
                target,
                length,
                self,
                known=known,
                tolerance=problem.accepted,
                allowed=problem.allowed,
                seed=problem.seed,
                progress=problem.progress,
            )
            for target, length, known in zip(
                problem.targets, problem.lengths, problem.known, strict=True
            )
        ]


@METHODS.register("auto")
class Auto(Method):
    """Exact search where the slice is causal and gives positions, joint search elsewhere."""

    def chosen(self, cut: SlicedModel, lengths: list[int], *, ordered: bool) -> Method:
        return Exact() if cut.causal and ordered else Joint()

    def solve(self, problem: Problem) -> list[Reconstruction]:
        return self.chosen(
            problem.cut, problem.lengths, ordered=problem.cut.slice.pool is None
        ).solve(problem)
