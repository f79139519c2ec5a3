"""Statistics by class, whatever the class is: the token itself, the token that follows, a whole context."""

from __future__ import annotations

from typing import Self

import numpy as np
import torch
from torch import Tensor

from headscan.statistics.accumulator import Accumulator

__all__ = ["ClassSums"]


class ClassSums(Accumulator):
    """Count, Σx, Σx/‖x‖, Σ‖x‖² and the number of zero vectors of every class seen so far.

    The table grows with the classes that occur, not with the classes there could be: a text of a million tokens may have
    20,000 next tokens of a vocabulary of 250,000. A batch costs one `index_add_` of n rows; the dense one-hot product
    that other tools use costs n·classes·width.

    With `limit`, at most that many classes are kept: those whose numbers have the smallest hash, a choice that depends
    on the class alone, so that it is the same in every part of a stream and is independent of the vectors. Memory:
    16 bytes·width a class.

    Attributes:
        labels: the classes' numbers, in the order in which they came [C].
        counts, zeros, squares: number of vectors, of those with norm zero, and Σ‖x‖² [C].
        sums, units: Σx and Σx/‖x‖ [C, width].

    >>> sums = ClassSums(2)
    >>> sums.update(torch.tensor([7, 3, 7]), torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]]))
    >>> sums.labels.tolist(), sums.counts.tolist(), sums.means().tolist(), sums.units[0].tolist()
    ([3, 7], [1, 2], [[0.0, 2.0], [2.0, 0.0]], [0.0, 1.0])
    """

    def __init__(self, width: int, *, limit: int | None = None, device: torch.device | str = "cpu"):
        self.width, self.limit, self.device = width, limit, torch.device(device)
        self._size, self._bound = 0, 2**62
        # With a limit the tables never need more room than this, which costs nothing until it is used; without, they grow.
        room = 0 if limit is None or self.device.type != "cpu" else _most(limit)
        self._labels = _empty((room,), np.int64).to(device)
        self._scalars = _empty((room, 3), np.float64).to(device)  # count, zeros, Σ‖x‖²
        self._vectors = _empty((room, 2, width), np.float64).to(device)  # Σx, Σx/‖x‖
        self._order = self._labels[:0]  # of the labels, for searching

    def __len__(self) -> int:
        self._trim()
        return self._size

    @property
    def labels(self) -> Tensor:
        """The classes' numbers."""
        self._trim()
        return self._labels[: self._size]

    @property
    def counts(self) -> Tensor:
        """Vectors of each class."""
        self._trim()
        return self._scalars[: self._size, 0].long()

    @property
    def zeros(self) -> Tensor:
        """Vectors of norm zero of each class."""
        self._trim()
        return self._scalars[: self._size, 1].long()

    @property
    def squares(self) -> Tensor:
        """Σ‖x‖² of each class."""
        self._trim()
        return self._scalars[: self._size, 2]

    @property
    def sums(self) -> Tensor:
        """Σx of each class."""
        self._trim()
        return self._vectors[: self._size, 0]

    @property
    def units(self) -> Tensor:
        """Σx/‖x‖ of each class."""
        self._trim()
        return self._vectors[: self._size, 1]

    def means(self) -> Tensor:
        """The mean of each class [C, width]."""
        return self.sums / self.counts[:, None]

    def update(self, labels: Tensor, rows: Tensor) -> None:
        """Add rows [n, width] of the classes [n]; labels below zero are left out."""
        labels, rows = labels.to(self.device), rows.detach().to(device=self.device, dtype=torch.float64)
        norms = torch.linalg.vector_norm(rows, dim=-1)
        units = rows * torch.where(norms > 0, 1 / norms, 0.0)[:, None]
        self.add(labels, norms, rows, units)

    def add(self, labels: Tensor, norms: Tensor, rows: Tensor, units: Tensor) -> None:
        """`update` for those who know the rows' lengths and directions already; all in float64, on this device."""
        kept = labels >= 0 if self.limit is None else (labels >= 0) & (_hash(labels) < self._bound)
        if not bool(kept.all()):
            labels, norms, rows, units = labels[kept], norms[kept], rows[kept], units[kept]
        if not len(labels):
            return
        own, inverse = torch.unique(labels, return_inverse=True)
        at = self._places(own)[inverse]
        scalars = torch.stack([torch.ones_like(norms), (norms == 0).double(), norms.square()], dim=-1)
        self._scalars.index_add_(0, at, scalars)
        self._vectors[:, 0].index_add_(0, at, rows)
        self._vectors[:, 1].index_add_(0, at, units)
        # To trim is to copy the table: only when it is a quarter too large, and when somebody looks.
        if self.limit is not None and self._size >= self.limit + self.limit // 4:
            self._trim()

    def _places(self, labels: Tensor) -> Tensor:
        """The table's rows of these (distinct) classes, made where they were not there yet."""
        mine = self._labels[: self._size][self._order]
        at = torch.searchsorted(mine, labels).clamp(max=max(len(mine) - 1, 0))
        known = mine[at] == labels if len(mine) else torch.zeros_like(labels, dtype=torch.bool)
        new = labels[~known]
        places = torch.empty_like(labels)
        places[known] = self._order[at[known]] if len(mine) else at[known]
        places[~known] = torch.arange(self._size, self._size + len(new), device=self.device)
        self._reserve(self._size + len(new))
        self._labels[self._size : self._size + len(new)] = new
        self._size += len(new)
        if len(new):
            self._order = torch.argsort(self._labels[: self._size])
        return places

    def _reserve(self, size: int) -> None:
        room = len(self._labels)
        if size <= room:
            return
        more = max(size, 2 * room, 256) - room
        self._labels = torch.cat([self._labels, self._labels.new_zeros(more)])
        self._scalars = torch.cat([self._scalars, self._scalars.new_zeros(more, 3)])
        self._vectors = torch.cat([self._vectors, self._vectors.new_zeros(more, 2, self.width)])

    def _trim(self) -> None:
        """Keep the `limit` classes of the smallest hashes; others can never be among them again."""
        if self.limit is None or self._size <= self.limit:
            return
        hashes = _hash(self._labels[: self._size])
        kept = torch.argsort(hashes)[: self.limit]
        self._bound = int(hashes[kept[-1]]) + 1
        for table in (self._labels, self._scalars, self._vectors):
            table[: self.limit] = table[kept]
            table[self.limit : self._size] = 0
        self._size, self._order = self.limit, torch.argsort(self._labels[: self.limit])

    def merge(self, other: ClassSums) -> None:
        """Add the classes of another part of the data."""
        kept = _hash(other.labels) < self._bound
        labels = other.labels[kept].to(self.device)
        if len(labels):
            at = self._places(labels)
            self._scalars.index_add_(0, at, other._scalars[: len(other)][kept].to(self.device))
            self._vectors.index_add_(0, at, other._vectors[: len(other)][kept].to(self.device))

    def without(self, part: ClassSums) -> ClassSums:
        """These sums less a part of them: of the classes kept here, what `part` has of them is taken away.

        >>> sums, part = ClassSums(1), ClassSums(1)
        >>> sums.update(torch.tensor([4, 4, 5]), torch.tensor([[1.0], [2.0], [3.0]]))
        >>> part.update(torch.tensor([5, 4]), torch.tensor([[3.0], [2.0]]))
        >>> rest = sums.without(part); rest.labels.tolist(), rest.counts.tolist(), rest.sums.tolist()
        ([4, 5], [1, 0], [[1.0], [0.0]])
        """
        new = self.restore(self.state())
        known = torch.isin(part.labels.to(self.device), new.labels)
        at = new._places(part.labels.to(self.device)[known])
        new._scalars.index_add_(0, at, part._scalars[: len(part)][known].to(self.device), alpha=-1)
        new._vectors.index_add_(0, at, part._vectors[: len(part)][known].to(self.device), alpha=-1)
        return new

    def state(self) -> dict[str, Tensor]:
        """Tensors `shape`, `labels`, `scalars` and `vectors`, by ascending label."""
        self._trim()
        shape = torch.tensor([self.width, -1 if self.limit is None else self.limit])
        order = self._order
        return {
            "shape": shape,
            "labels": self.labels[order],
            "scalars": self._scalars[: self._size][order],
            "vectors": self._vectors[: self._size][order],
        }

    @classmethod
    def restore(cls, state: dict[str, Tensor]) -> Self:
        """The inverse of `state`, up to the order of the classes."""
        width, limit = state["shape"].tolist()
        new = cls(width, limit=None if limit < 0 else limit, device=state["labels"].device)
        new._labels, new._scalars = state["labels"].clone(), state["scalars"].clone()
        new._vectors, new._size = state["vectors"].clone(), len(state["labels"])
        new._order = torch.arange(new._size, device=new.device)
        return new


def _most(limit: int) -> int:
    """Rows that a table with a limit holds at once: a quarter more, and what a batch may add on top."""
    return limit + limit // 4 + 4096


def _empty(shape: tuple[int, ...], kind: type) -> Tensor:
    """Zeros that take no memory until they are written to (numpy asks the system for them; torch would write them)."""
    return torch.from_numpy(np.zeros(shape, dtype=kind))


def _hash(labels: Tensor) -> Tensor:
    """A fixed mixing of whole numbers to [0, 2^61): multiply and fold, twice (constants of splitmix64, as signed)."""
    mixed = labels * -7046029254386353131
    mixed = (mixed ^ (mixed >> 29)) * -4658895280553007687
    return (mixed ^ (mixed >> 32)) & (2**61 - 1)
