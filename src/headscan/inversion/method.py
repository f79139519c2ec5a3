"""What every inversion method is: it takes outputs and gives tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Bool, Float
from torch import Tensor

from headscan.inversion.kept import KeptSearch
from headscan.inversion.reconstruction import Reconstruction
from headscan.inversion.tolerance import accepted
from headscan.model.slicing import SlicedModel
from headscan.run import Progress, Registry, Settings

__all__ = ["METHODS", "Method", "Problem"]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """What is to be inverted.

    Attributes:
        cut: the slice on its model.
        targets: for each prompt its output [T', w'].
        lengths: for each prompt T.
        known: for each prompt tokens that are given, by position.
        allowed: bool [V], the vocabulary to choose from; None is all of it.
        tolerance: the relative residual that counts as found; None chooses by precision.
        seed: of what is drawn.
        progress: told how far the work is.
        kept: where a search that can go on stores what it found.
    """

    cut: SlicedModel
    targets: list[Float[Tensor, "kept w"]]
    lengths: list[int]
    known: list[dict[int, int]]
    allowed: Bool[Tensor, " V"] | None = None
    tolerance: float | None = None
    seed: int = 0
    progress: Progress | None = None
    kept: KeptSearch | None = None

    def __repr__(self) -> str:
        return f"Problem({len(self.targets)} prompts of {self.cut!r})"

    @property
    def accepted(self) -> float:
        """The relative residual that counts as found."""
        return accepted(self.cut) if self.tolerance is None else self.tolerance


@dataclass(frozen=True, kw_only=True)
class Method(Settings, ABC):
    """A way from outputs to tokens. Its fields are its parameters: options of the command line."""

    name: ClassVar[str]

    def chosen(self, cut: SlicedModel, lengths: list[int], *, ordered: bool) -> Method:
        """The method that is used here, itself as a rule, before anything is run.

        Args:
            cut: the slice.
            lengths: of the prompts.
            ordered: whether what is given tells positions apart.

        Raises:
            BadInput: the method cannot invert such an output.
        """
        return self

    @abstractmethod
    def solve(self, problem: Problem) -> list[Reconstruction]:
        """One reconstruction a prompt."""


METHODS: Registry[type[Method]] = Registry("method", "headscan.inversion.methods")
"""All inversion methods by name."""
