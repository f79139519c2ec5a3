"""What a null is: how the sampled tokens of two models would look if they had nothing to do with one another."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Generator, Tensor

from headscan.geometry.compare.prepared import Prepared
from headscan.geometry.compare.similarity import SimilarityMeasure
from headscan.run import Registry

__all__ = ["NULLS", "NullModel", "NullTask", "NullWords"]


@dataclass(frozen=True, kw_only=True)
class NullWords:
    """What a null says of itself: its title, what it takes away, what it keeps, and what a small p then means."""

    title: str
    sentence: str
    keeps: str


@dataclass(frozen=True)
class NullTask:
    """The sampled rows [windows, m, d] of each site of two models, how many draws are wanted, and what is measured.

    `redrawn(seed)` gives the first model's rows with fresh random weights; None where that cannot be had.
    """

    x: Sequence[Tensor]
    y: Sequence[Tensor]
    measures: Mapping[str, SimilarityMeasure]
    draws: int
    generator: Generator
    redrawn: Callable[[int], Sequence[Tensor]] | None = None


class NullModel(ABC):
    """A null hypothesis. A subclass is registered in `NULLS`, one a file."""

    words: ClassVar[NullWords]

    @abstractmethod
    def pairs(self, task: NullTask) -> Iterator[tuple[Prepared, Prepared]]:
        """First the two as they were observed, then as many draws as are wanted; nothing where it cannot be had."""


NULLS: Registry[type[NullModel]] = Registry("null", "headscan.geometry.compare.nulls")
"""Every null by its name: the files of headscan/geometry/compare/nulls, and those of plug-ins."""
