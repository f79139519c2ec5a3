"""What a null is: how the sampled tokens of two models would look if they had nothing to do with one another."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Generator, Tensor

from headscan.comparison.covariance import Prepared, SimilarityMeasure
from headscan.run import Registry


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
    """A null hypothesis. A subclass is registered in `NULLS`."""

    words: ClassVar[NullWords]

    @abstractmethod
    def pairs(self, task: NullTask) -> Iterator[tuple[Prepared, Prepared]]:
        """First the two as they were observed, then as many draws as are wanted; nothing where it cannot be had."""


NULLS: Registry[type[NullModel]] = Registry("null", "headscan.comparison.nulls")
"""Every null by its name: headscan/comparison/nulls.py, and those of plug-ins."""


# ---- Other windows of the same text: whole windows change places.


@NULLS.register("permutation")
class Permutation(NullModel):
    """The second model's windows in random order, position by position: exact where windows are exchangeable."""

    words = NullWords(
        title="Permuted windows",
        sentence="Each window of one model is held against another window of the other, position by position.",
        keeps="what is the same at a position of any window, and what hangs together inside a window",
    )

    def pairs(self, task: NullTask) -> Iterator[tuple[Prepared, Prepared]]:
        x, y = (Prepared.of(rows, task.measures) for rows in (task.x, task.y))
        if y.windows < 2:
            return
        yield x, y
        for _ in range(task.draws):
            yield x, y.permuted(torch.randperm(y.windows, generator=task.generator))


# ---- The first model with fresh random weights: what text and architecture alone make alike.


@NULLS.register("random-init")
class RandomInit(NullModel):
    """The first model's architecture with weights drawn anew, against the second model as it is.

    Two models that read the same text share its tokens and positions, so untrained ones are alike, too, and a permutation
    rejects them. Given the second model, a first one whose weights are random is exchangeable with the draws: p is exact.
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


# ---- Each window turned by itself: no common frame is left.


@NULLS.register("rotation")
class RotatedWindows(NullModel):
    """The second model's windows, each turned by a random rotation of its own, on 16 principal components.

    One rotation of all tokens would change none of the measures. One of each window keeps all lengths and all angles
    between tokens of a window, and takes away what different windows say of one another.
    """

    words = NullWords(
        title="Rotated windows",
        sentence="Each window of one model is turned by a random rotation of its own.",
        keeps="all lengths, and all angles between tokens of the same window",
    )

    def pairs(self, task: NullTask) -> Iterator[tuple[Prepared, Prepared]]:
        x, y = (Prepared.of(rows, {}) for rows in (task.x, task.y))
        if y.windows < 2:
            return
        first = Prepared.on(x.windows, x.coordinates, list(x.coordinates), task.measures)
        yield first, Prepared.on(y.windows, y.coordinates, list(y.coordinates), task.measures)
        for _ in range(task.draws):
            turned = _turned(y.coordinates.unflatten(1, (y.windows, -1)), task.generator).flatten(1, 2)
            yield first, Prepared.on(y.windows, turned, list(turned), task.measures)


def _turned(windows: Tensor, generator: torch.Generator) -> Tensor:
    """Rows [S, windows, m, k], each window by a rotation from the uniform distribution (Mezzadri 2007)."""
    size = windows.shape[-1]
    normal = torch.randn(windows.shape[1], size, size, generator=generator, dtype=windows.dtype)
    q, r = torch.linalg.qr(normal)
    turned: Tensor = windows @ (q * r.diagonal(dim1=-2, dim2=-1).sign()[..., None, :])
    return turned


# ---- Many cells are tested at once: p values that keep the share of false discoveries.


def benjamini_hochberg(p: Sequence[float]) -> list[float]:
    """Adjusted p values (Benjamini and Hochberg 1995): calling those below α discoveries, at most α of them are false on
    average, where the tests are independent or positively dependent, as those of neighbouring layers are.

    >>> benjamini_hochberg([0.01, 0.02, 0.5])
    [0.03, 0.03, 0.5]
    """
    values = np.asarray(p, dtype=np.float64)
    order = np.argsort(values)[::-1]
    ranks = np.arange(len(values), 0, -1)
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(1.0, np.minimum.accumulate(values[order] * len(values) / ranks))
    return [float(value) for value in adjusted]
