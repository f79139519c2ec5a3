"""The method that chooses."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor

from headscan.inversion.candidates import SearchTrace
from headscan.inversion.continuous import descend, refuse_sequential
from headscan.inversion.decoders import Decoding
from headscan.inversion.joint_search import JointSearch, joint
from headscan.inversion.left_to_right import exact, refuse_unordered
from headscan.inversion.method import METHODS, Method, Problem, Search
from headscan.inversion.reconstruction import PRESETS, UNCOMPARED, Descent, Loss, Reconstruction, Start
from headscan.model.slicing import SlicedModel
from headscan.run import BadInput, Option, halving

# ---- Exact search as a method, also where the first outputs are not given.

_JOINT = JointSearch()


@METHODS.register("exact")
@dataclass(frozen=True, kw_only=True)
class Exact(Search, Method):
    """Token by token from left to right, every candidate being run: causal slices that give positions.

    The tokens up to the first output given are searched jointly from that output alone; the tokens after the last one
    are absent.

    Source: Nikolaou et al., arXiv:2510.15511 (SipIt).
    """

    name: ClassVar[str] = "exact"

    hidden: Annotated[JointSearch, Option("How tokens without an output of their own are searched.", python=True)] = (
        _JOINT
    )

    def chosen(self, cut: SlicedModel, lengths: list[int], *, ordered: bool) -> Method:
        """Itself, where the slice goes from left to right."""
        if not ordered:
            raise BadInput(
                "What is given carries no position (one vector stands for all of them), so it cannot be inverted token by "
                "token: use the method 'joint'."
            )
        refuse_unordered(cut)
        return self

    def solve(self, problem: Problem) -> list[Reconstruction]:
        """All prompts in step where every output is given, else each by itself."""
        if all(problem.cut.kept(length) == list(range(length)) for length in problem.lengths):
            return [self._reconstruction(one) for one in self._ordered(problem, problem.targets, None)]
        return [self._hidden(problem, *one) for one in zip(problem.targets, problem.lengths, strict=True)]

    def _ordered(self, problem: Problem, targets: list[Tensor], known: Tensor | None) -> list[SearchTrace]:
        return exact(
            problem.cut, targets, self, known=known, allowed=problem.allowed, tolerance=problem.tolerance,
            seed=problem.seed, progress=problem.progress, kept=problem.kept,
        )  # fmt: skip

    def _reconstruction(self, found: SearchTrace) -> Reconstruction:
        return Reconstruction(
            found.tokens, sum(found.evaluations), found.compared, found.evaluations,
            stopped=bool(found.failed) and not found.exhausted, notes=tuple(found.notes), passes=found.passes,
        )  # fmt: skip

    def _hidden(self, problem: Problem, target: Tensor, length: int) -> Reconstruction:
        """A prompt whose outputs are given only at some positions: the hidden tokens jointly, the rest in order."""
        cut = problem.cut
        first = cut.kept(length)[0]
        before = Reconstruction([], 0)
        if first > 0:
            only = cut.keeping("-1")
            before = joint(
                only, target[:1], first + 1, self.hidden, tolerance=problem.accepted, allowed=problem.allowed, seed=problem.seed,
                progress=problem.progress,
            )  # fmt: skip
        rest, after = target[1:] if first > 0 else target, SearchTrace()
        if len(rest):
            known = torch.tensor([before.tokens], dtype=torch.int64) if before.tokens else None
            after = self._ordered(problem, [rest], known)[0]
        return _joined(before, self._reconstruction(after), length)


def _joined(before: Reconstruction, after: Reconstruction, length: int) -> Reconstruction:
    """Two parts of a prompt of `length` tokens, the first searched jointly; what neither reaches has token 0."""
    tokens = before.tokens + after.tokens
    absent = length - len(tokens)
    return replace(
        after,
        tokens=tokens + [0] * absent,
        evaluations=before.evaluations + after.evaluations,
        compared=(before.compared or [UNCOMPARED] * len(before.tokens))
        + (after.compared or [])
        + [UNCOMPARED] * absent,
        per_token=None,
        stopped=before.stopped or after.stopped,
        notes=after.notes,
    )


# ---- Gradient descent on embeddings, and what it shares with that on vectors over the vocabulary.


@METHODS.register("indirect")
@dataclass(frozen=True, kw_only=True)
class Indirect(Method):
    """Embeddings are moved by gradients until the output fits, then decoded.

    A field that is None is the preset's.

    >>> Indirect(preset="seed", steps=50).descent(seed=0).optimiser
    'sgd'
    """

    name: ClassVar[Literal["indirect", "direct"]] = "indirect"

    preset: Annotated[
        Literal["adam", "lbfgs", "seed"], Option("Named settings; 'seed' is the published method, exactly.")
    ] = "adam"
    steps: Annotated[int | None, Option("Gradient steps. Default: the preset's.", low=1)] = None
    loss: Annotated[Loss | None, Option("Distance of outputs. Default: the preset's.")] = None
    decoder: Annotated[Decoding | None, Option("From vectors to tokens. Default: the preset's.")] = None
    restarts: Annotated[int | None, Option("Starts per prompt, in one batch. Default: 1.", low=1)] = None
    init: Annotated[Start | None, Option("Begin at embedding scale, at zeros, or at noise (as published).")] = None
    sequential: Annotated[bool, Option("One token after another, those found committed.")] = False
    rate: Annotated[float | None, Option("First learning rate. Default: by optimiser.", above=0)] = None

    def descent(self, seed: int) -> Descent:
        """The settings in full; a seed of 0 leaves the preset's own."""
        base = PRESETS["seed-direct" if self.preset == "seed" and self.name == "direct" else self.preset]
        given = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "preset"}
        changes = {name: value for name, value in given.items() if value is not None}
        return replace(base, method=self.name, seed=seed or base.seed, **changes)

    def chosen(self, cut: SlicedModel, lengths: list[int], *, ordered: bool) -> Method:
        """Itself, where the slice gives what sequential descent needs."""
        if self.sequential:
            refuse_sequential(cut, lengths)
        return self

    def solve(self, problem: Problem) -> list[Reconstruction]:
        """Prompts of one length in a batch."""
        found: dict[int, Reconstruction] = {}
        for length in sorted(set(problem.lengths)):
            rows = [row for row, one in enumerate(problem.lengths) if one == length]
            found |= self._of_length(problem, rows, length)
        return [found[row] for row in range(len(problem.lengths))]

    def _of_length(self, problem: Problem, rows: list[int], length: int) -> dict[int, Reconstruction]:
        settings = self.descent(problem.seed)
        found: dict[int, Reconstruction] = {}

        def work(begin: int, end: int) -> None:
            part = rows[begin:end]
            target = torch.stack([problem.targets[row] for row in part])
            made = descend(problem.cut, target, length, settings, allowed=problem.allowed, progress=problem.progress)
            for place, row in enumerate(part):
                tokens, top = made.tokens[place].tolist(), made.top[place].tolist()
                found[row] = Reconstruction(tokens, made.steps, passes=made.passes // len(part), top=top)

        size = halving(len(rows), work, least="Use a shorter prompt, fewer restarts or a smaller model.")
        if size < len(rows):
            note = f"Memory ran out with {len(rows)} prompts together; {size} are descended at a time."
            return {row: replace(one, notes=(note,)) for row, one in found.items()}
        return found


# ---- Gradient descent on vectors over the vocabulary.


@METHODS.register("direct")
@dataclass(frozen=True, kw_only=True)
class Direct(Indirect):
    """Vectors over the vocabulary are moved by gradients; the token is the largest entry.

    As published (preset 'seed') it fails by its random start, which the gradient never touches in the null space of the
    embedding; from zero it works.

    >>> Direct(preset="seed").descent(seed=0).null_space
    True
    """

    name: ClassVar[Literal["indirect", "direct"]] = "direct"


# ---- Joint search as a method.


@METHODS.register("joint")
@dataclass(frozen=True, kw_only=True)
class Joint(JointSearch, Method):
    """All tokens of a prompt together: gradient descents, then exchanges of one token after another; any slice.

    A result is verified like any other; finding none proves nothing.
    """

    name: ClassVar[str] = "joint"

    def solve(self, problem: Problem) -> list[Reconstruction]:
        """Each prompt by itself."""
        return [
            joint(
                problem.cut, target, length, self, known=known, tolerance=problem.accepted, allowed=problem.allowed,
                seed=problem.seed, progress=problem.progress,
            )
            for target, length, known in zip(problem.targets, problem.lengths, problem.known, strict=True)
        ]  # fmt: skip


@METHODS.register("auto")
@dataclass(frozen=True, kw_only=True)
class Auto(Method):
    """Exact search where the slice is causal and gives positions, joint search elsewhere."""

    name: ClassVar[str] = "auto"

    def chosen(self, cut: SlicedModel, lengths: list[int], *, ordered: bool) -> Method:
        """`Exact` or `Joint`."""
        return Exact() if cut.causal and ordered else Joint()

    def solve(self, problem: Problem) -> list[Reconstruction]:
        """By the method chosen for outputs with positions."""
        return self.chosen(problem.cut, problem.lengths, ordered=problem.cut.slice.pool is None).solve(problem)
