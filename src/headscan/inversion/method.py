"""What every inversion method is: it takes outputs and gives tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from jaxtyping import Bool, Float
from torch import Tensor

from headscan.inversion.candidates import Checkpoint
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
    checkpoint: Checkpoint | None = None  # where a search that can go on stores what it found

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
        Literal["auto", "table", "readout", "gradient", "frequency", "random"],
        Option(
            "Candidates by the table of all first outputs, by a linear readout and the model's own prior (auto: the table "
            "up to a vocabulary of 32,768), by a gradient first, by frequency, or random (brute force)."
        ),
    ] = "auto"
    fit: Annotated[
        str | None, Option("A text that the readout is fitted on, at most 8,192 tokens. Default: the embedded stories.")
    ] = None
    budget: Annotated[int | None, Option("Candidates at one position. Default: the whole vocabulary.", low=1)] = None
    neighbours: Annotated[
        int,
        Option(
            "Tokens predicted nearest that are tried after a find, for the certificate; -1: the vocabulary.", low=-1
        ),
    ] = 16
    first: Annotated[
        int | None,
        Option(
            "Candidates of the first batch. Default: 8, each batch twice the last; by the readout 16, four times.",
            low=1, python=True,
        ),
    ] = None  # fmt: skip
    largest: Annotated[int, Option("Candidates of the largest batch.", low=1, python=True)] = 512
    gradient_after: Annotated[
        int | None,
        Option("Candidates by the table after which a gradient is asked for help; None: never.", low=0, python=True),
    ] = 56
    backtracks: Annotated[int, Option("Wrong prefixes that may be taken back, per prompt.", low=0, python=True)] = 64

    def ranked_by(self, cut: SlicedModel) -> Literal["table", "readout"] | None:
        """What ranks the candidates of a slice; None for a fixed order.

        The table costs two passes of the vocabulary, the fit of the readout 8,192 tokens, whatever the slice.
        """
        if self.order == "table" or self.order == "readout":
            return self.order
        if self.order in ("frequency", "random"):
            return None
        return "table" if passes_of_table(cut) <= WORTH * TOKENS else "readout"

    def batches(self, *, readout: bool) -> tuple[int, int]:
        """Candidates of the first batch, and how many times larger each is than the last."""
        return (self.first or 16, 4) if readout else (self.first or 8, 2)
