"""What every inversion method is: it takes outputs and gives tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from jaxtyping import Bool, Float
from torch import Tensor

from headscan.inversion.readout import TOKENS
from headscan.inversion.reconstruction import Reconstruction, accepted
from headscan.inversion.table import passes_of_table
from headscan.model.slicing import SlicedModel
from headscan.run import Option, Progress, Registry, Settings


@dataclass(frozen=True, kw_only=True)
class Problem:
    """What is to be inverted."""

    cut: SlicedModel
    targets: list[Float[Tensor, "kept w"]]  # the output of each prompt
    lengths: list[int]  # tokens of each prompt
    known: list[dict[int, int]]  # of each prompt the tokens that are given, by position
    allowed: Bool[Tensor, " V"] | None = None  # the vocabulary to choose from; None: all of it
    tolerance: float | None = None  # relative residual that counts as found; None: by precision
    seed: int = 0
    progress: Progress | None = None

    @property
    def accepted(self) -> float:
        return accepted(self.cut) if self.tolerance is None else self.tolerance


@dataclass(frozen=True, kw_only=True)
class Method(Settings, ABC):
    """A way from outputs to tokens. Its fields are its parameters: options of the command line."""

    name: ClassVar[str]

    def chosen(self, cut: SlicedModel, lengths: list[int], *, ordered: bool) -> Method:
        """The method that is used for prompts of these lengths, itself as a rule, before anything is run.

        `ordered` says whether the observation tells positions apart. Raises BadInput for an output it cannot invert.
        """
        return self

    @abstractmethod
    def solve(self, problem: Problem) -> list[Reconstruction]:
        """One reconstruction a prompt."""


METHODS: Registry[type[Method]] = Registry("method", "headscan.inversion.methods")
"""All inversion methods by name."""


# ---- How to search from left to right.

# The table is worth that many times the tokens of the readout's fit: it orders a little better, and is kept as well.
WORTH = 8


@dataclass(frozen=True, kw_only=True)
class Search(Settings):
    """How to search from left to right.

    >>> Search(order="random", budget=100).neighbours
    16
    """

    order: Annotated[
        Literal["auto", "table", "readout", "random"],
        Option(
            "Candidates by the table of all first outputs, by a linear readout and the model's own prior (auto: the table "
            "up to a vocabulary of 32,768), or random (brute force)."
        ),
    ] = "auto"
    budget: Annotated[int | None, Option("Candidates at one position. Default: the whole vocabulary.", low=1)] = None
    neighbours: Annotated[
        int, Option("Tokens predicted nearest that are tried after a find, for the certificate.", low=0, python=True)
    ] = 16
    backtracks: Annotated[int, Option("Wrong prefixes that may be taken back, per prompt.", low=0, python=True)] = 64

    def ranked_by(self, cut: SlicedModel) -> Literal["table", "readout", "random"]:
        """What ranks the candidates of a slice.

        The table costs two passes of the vocabulary, the fit of the readout 8,192 tokens, whatever the slice.
        """
        if self.order != "auto":
            return self.order
        return "table" if passes_of_table(cut) <= WORTH * TOKENS else "readout"
