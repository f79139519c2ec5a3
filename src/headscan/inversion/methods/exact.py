"""Exact search as a method, also where the first outputs are not given."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from headscan.inversion.candidates import SearchTrace
from headscan.inversion.exchange import JointSearch, joint
from headscan.inversion.left_to_right import Search, exact, refuse_unordered
from headscan.inversion.method import METHODS, Method, Problem
from headscan.inversion.reconstruction import UNCOMPARED, Reconstruction
from headscan.model.slicing import SlicedModel
from headscan.run import BadInput, Option

__all__ = ["Exact"]


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
