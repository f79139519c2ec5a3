"""The inversion methods, which take outputs and give tokens: exact, joint, indirect, direct, and the one that chooses."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Annotated, ClassVar, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headscan.inversion.candidates import SearchTrace
from headscan.inversion.continuous import PRESETS, Descent, Loss, Start, descend
from headscan.inversion.joint_search import JointSearch, joint
from headscan.inversion.left_to_right import Search, exact, refuse_unordered
from headscan.inversion.reconstruction import UNCOMPARED, Reconstruction, accepted
from headscan.model.slicing import SlicedModel
from headscan.run import BadInput, Named, Option, Progress, Registry, Settings


@dataclass(frozen=True, kw_only=True)
class Problem:
    """What is to be inverted."""

    cut: SlicedModel
    targets: list[Float[Tensor, "kept w"]]  # the output of each prompt
    lengths: list[int]  # tokens of each prompt
    known: list[dict[int, int]]  # of each prompt the tokens that are given, by position
    allowed: Bool[Tensor, " V"] | None = None  # the vocabulary to choose from; None: all of it
    tolerance: float | None = None  # relative residual that counts as found; None: by precision
    certain: float | None = None  # one that ends the search of a position at once; None: a tolerance that is given
    seed: int = 0
    progress: Progress | None = None

    def __post_init__(self) -> None:
        # Below what rounding does, equal outputs cannot be told from unequal ones: a token would look unique that is not.
        if self.tolerance is not None and self.tolerance < (least := accepted(self.cut)):
            raise BadInput(
                f"--tolerance {self.tolerance:.2g} is less than rounding may do at {self.cut.slice}: the least is {least:.2g}."
            )

    @property
    def accepted(self) -> float:
        return accepted(self.cut) if self.tolerance is None else self.tolerance


@dataclass(frozen=True, kw_only=True)
class Method(Settings, Named, ABC):
    """A way from outputs to tokens. Its fields are its parameters: options of the command line."""

    def chosen(self, cut: SlicedModel, lengths: list[int], *, ordered: bool) -> "Method":
        """The method that is used for prompts of these lengths; BadInput for an output that it cannot invert. `ordered` says
        whether the observation tells positions apart."""
        return self

    @abstractmethod
    def solve(self, problem: Problem) -> list[Reconstruction]:
        """One reconstruction a prompt."""


METHODS: Registry[type[Method]] = Registry("method")
"""All inversion methods by name."""

_JOINT = JointSearch()


@METHODS.register("exact")
class Exact(Search, Method):
    """Token by token from left to right, every candidate being run: causal slices that give positions.

    Tokens before the first output given are searched jointly. Source: Nikolaou et al., arXiv:2510.15511 (SipIt).
    """

    hidden: Annotated[JointSearch, Option("How tokens without an output of their own are searched.", python=True)] = _JOINT

    def chosen(self, cut: SlicedModel, lengths: list[int], *, ordered: bool) -> Method:
        if not ordered:
            raise BadInput(
                "What is given carries no position (one vector stands for all of them), so it cannot be inverted token by "
                "token: use the method 'joint'."
            )
        refuse_unordered(cut)
        return self

    def solve(self, problem: Problem) -> list[Reconstruction]:
        if all(problem.cut.kept(length) == list(range(length)) for length in problem.lengths):
            return self._ordered(problem, problem.targets, None)
        return [self._hidden(problem, *pair) for pair in zip(problem.targets, problem.lengths, strict=True)]

    def _ordered(self, problem: Problem, targets: list[Tensor], known: Tensor | None) -> list[Reconstruction]:
        """All prompts in step, where every output after the known tokens is given."""
        traces = exact(
            problem.cut, targets, self, known=known, allowed=problem.allowed, tolerance=problem.tolerance,
            certain=problem.certain, seed=problem.seed, progress=problem.progress,
        )  # fmt: skip
        return [_reconstruction(trace) for trace in traces]

    def _hidden(self, problem: Problem, target: Tensor, length: int) -> Reconstruction:
        """A prompt whose outputs are given only at some positions: the hidden tokens jointly, the rest in order."""
        first, before = problem.cut.kept(length)[0], Reconstruction([], 0)
        if first > 0:
            before = joint(
                problem.cut.keeping("-1"), target[:1], first + 1, self.hidden, tolerance=problem.accepted,
                allowed=problem.allowed, seed=problem.seed, progress=problem.progress,
            )  # fmt: skip
        rest, after = target[1:] if first > 0 else target, _reconstruction(SearchTrace())
        if len(rest):
            known = torch.tensor([before.tokens], dtype=torch.int64) if before.tokens else None
            after = self._ordered(problem, [rest], known)[0]
        absent = length - len(before.tokens) - len(after.tokens)  # what neither reaches has token 0
        compared = [*(before.compared or [UNCOMPARED] * len(before.tokens)), *(after.compared or [])]
        return replace(
            after, tokens=before.tokens + after.tokens + [0] * absent, evaluations=before.evaluations + after.evaluations,
            compared=compared + [UNCOMPARED] * absent, per_token=None, stopped=before.stopped or after.stopped,
        )  # fmt: skip


def _reconstruction(trace: SearchTrace) -> Reconstruction:
    return Reconstruction(
        trace.tokens, sum(trace.evaluations), [step.evidence for step in trace.steps], trace.evaluations,
        stopped=bool(trace.failed) and not trace.exhausted, notes=tuple(trace.notes), passes=trace.passes,
    )  # fmt: skip


@METHODS.register("indirect")
class Indirect(Method):
    """Embeddings are moved by gradients until the output fits, then decoded; a field that is None is the preset's."""

    name: ClassVar[Literal["indirect", "direct"]] = "indirect"

    preset: Annotated[Literal["adam", "seed"], Option("Named settings; 'seed' is the published method, exactly.")] = "adam"
    steps: Annotated[int | None, Option("Gradient steps. Default: the preset's.", low=1)] = None
    loss: Annotated[Loss | None, Option("Distance of outputs. Default: the preset's.")] = None
    init: Annotated[Start | None, Option("Begin at embedding scale, at zeros, or at noise (as published).")] = None
    rate: Annotated[float | None, Option("First learning rate. Default: by optimiser.", above=0)] = None

    def descent(self, seed: int) -> Descent:
        """The settings in full; a seed of 0 leaves the preset's own."""
        base = PRESETS["seed-direct" if self.preset == "seed" and self.name == "direct" else self.preset]
        given = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "preset"}
        changes = {name: value for name, value in given.items() if value is not None}
        return replace(base, method=self.name, seed=seed or base.seed, **changes)

    def solve(self, problem: Problem) -> list[Reconstruction]:
        """Prompts of one length are descended together."""
        settings, found = self.descent(problem.seed), dict[int, Reconstruction]()
        for length in sorted(set(problem.lengths)):
            rows = [row for row, own in enumerate(problem.lengths) if own == length]
            target, told = torch.stack([problem.targets[row] for row in rows]), problem.progress
            descended = descend(problem.cut, target, length, settings, allowed=problem.allowed, progress=told)
            passes = descended.passes // len(rows)
            for row, tokens, top in zip(rows, descended.tokens.tolist(), descended.top.tolist(), strict=True):
                found[row] = Reconstruction(tokens, descended.steps, passes=passes, top=top)
        return [found[row] for row in range(len(problem.lengths))]


@METHODS.register("direct")
class Direct(Indirect):
    """Vectors over the vocabulary are moved by gradients; the token is the largest entry.

    As published (preset 'seed') it fails by its random start, whose part in the null space of the embedding no gradient moves.
    """

    name: ClassVar[Literal["indirect", "direct"]] = "direct"


@METHODS.register("joint")
class Joint(JointSearch, Method):
    """All tokens of a prompt together: gradient descents, then exchanges of one token after another; any slice."""

    def solve(self, problem: Problem) -> list[Reconstruction]:
        return [
            joint(
                problem.cut, target, length, self, known=known, tolerance=problem.accepted, allowed=problem.allowed,
                seed=problem.seed, progress=problem.progress,
            )
            for target, length, known in zip(problem.targets, problem.lengths, problem.known, strict=True)
        ]  # fmt: skip


@METHODS.register("auto")
class Auto(Method):
    """Exact search where the slice is causal and gives positions, joint search elsewhere."""

    def chosen(self, cut: SlicedModel, lengths: list[int], *, ordered: bool) -> Method:
        return Exact() if cut.causal and ordered else Joint()

    def solve(self, problem: Problem) -> list[Reconstruction]:
        return self.chosen(problem.cut, problem.lengths, ordered=problem.cut.slice.pool is None).solve(problem)
