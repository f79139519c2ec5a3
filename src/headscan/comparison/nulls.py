"""Nulls: how the sampled tokens of two models would look if they had nothing to do with one
another.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor

from headscan.comparison.covariance import Prepared, SimilarityMeasure
from headscan.run import Registry


@dataclass(frozen=True, kw_only=True)
class NullWords:
    """What a null says of itself: its title, what it takes away, what it keeps, and what a small p
    then means.
    """

    title: str
    sentence: str
    keeps: str


@dataclass(frozen=True)
class NullTask:
    """The sampled rows [windows, m, d] of each site of two models, how many draws are wanted, and
    what is measured.

    `redrawn(seed)` gives the first model's rows with fresh random weights; None where that cannot
    be had.
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
        """First the two as they were observed, then as many draws as are wanted; nothing where it
        cannot be had.
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
        sentence="Each window of one model is held against another window of the other, position "
        "by position.",
        keeps="what is the same at a position of any window, and what hangs together inside a "
        "window",
    )

    def pairs(self, task: NullTask) -> Iterator[tuple[Prepared, Prepared]]:
        x, y = (Prepared.of(rows, task.measures) for rows in (task.x, task.y))
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
        x, y = (Prepared.of(rows, task.measures) for rows in (task.x, task.y))
        yield x, y
        for draw in range(task.draws):
            yield Prepared.of(task.redrawn(draw), task.measures), y
