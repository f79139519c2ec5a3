"""The method that chooses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from headscan.inversion.method import METHODS, Method, Problem
from headscan.inversion.methods.exact import Exact
from headscan.inversion.methods.joint import Joint
from headscan.inversion.reconstruction import Reconstruction
from headscan.model.slicing import SlicedModel

__all__ = ["Auto"]


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
