"""Joint search as a method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from headscan.inversion.exchange import JointSearch, joint
from headscan.inversion.method import METHODS, Method, Problem
from headscan.inversion.reconstruction import Reconstruction

__all__ = ["Joint"]


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
