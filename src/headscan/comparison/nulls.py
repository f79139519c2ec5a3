"""Nulls of a comparison: sampled tokens of two models that have nothing to do with each other."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor

from headscan.comparison.prepared import Prepared
from headscan.comparison.similarity import SimilarityMeasure
from headscan.run import Registry


@dataclass(frozen=True, kw_only=True)
class NullWords:
    """The description of a null: its title, what is drawn, and what the draws preserve."""

    title: str
    sentence: str
    keeps: str


@dataclass(frozen=True)
class NullTask:
    """The sampled tokens that a null is drawn from.

    Attributes:
        x, y: rows [windows, m, d] of each site of the two models.
        measures: by name.
        draws: their number.
        redrawn: a function of a draw's number that gives the first model's rows with fresh random
            weights; None where there is none.
    """

    x: Sequence[Tensor]
    y: Sequence[Tensor]
    measures: Mapping[str, SimilarityMeasure]
    draws: int
    generator: Generator
    redrawn: Callable[[int], Sequence[Tensor]] | None = None


class NullModel(ABC):
    """A null hypothesis. A subclass is registered in `NULLS`."""

    words: ClassVar[NullWords]

    @abstractmethod
    def pairs(self, task: NullTask) -> Iterator[tuple[Prepared, Prepared]]:
        """Yield the two models as they were observed, then the draws.

        Yields nothing where the null cannot be drawn.
        """


NULLS: Registry[type[NullModel]] = Registry("null", "headscan.comparison.nulls")
"""Every null by its name: headscan/comparison/nulls.py, and those of plug-ins."""


WINDOWS = 4
"""Three windows have six orders, so that no p can be below 1/6; four have 24."""


@NULLS.register("permutation")
class Permutation(NullModel):
    """The second model's windows in random order, position by position: exact where windows are
    exchangeable.
    """

    words = NullWords(
        title="Permuted windows",
        sentence="Each window of one model is compared with another window of the other, position "
        "by position.",
        keeps="what is the same at a position of any window, and what hangs together inside a "
        "window",
    )

    def pairs(self, task: NullTask) -> Iterator[tuple[Prepared, Prepared]]:
        x = Prepared.of(task.x, task.measures)
        y = Prepared.of(task.y, task.measures)
        if y.windows < WINDOWS:
            return
        yield x, y
        for _ in range(task.draws):
            yield x, y.permuted(torch.randperm(y.windows, generator=task.generator))


@NULLS.register("random-init")
class RandomInit(NullModel):
    """The first model's architecture with weights drawn anew, against the second model as it is.

    Two models that read the same text share its tokens and positions, so untrained ones are alike,
    too, and a permutation rejects them. Given the second model, a first one whose weights are
    random is exchangeable with the draws: p is exact.
    """

    words = NullWords(
        title="Random weights",
        sentence="The first model with fresh random weights reads the same windows.",
        keeps="the tokens and positions that both read, and the first model's architecture",
    )

    def pairs(self, task: NullTask) -> Iterator[tuple[Prepared, Prepared]]:
        if task.redrawn is None:
            return
        x = Prepared.of(task.x, task.measures)
        y = Prepared.of(task.y, task.measures)
        yield x, y
        for draw in range(task.draws):
            yield Prepared.of(task.redrawn(draw), task.measures), y
