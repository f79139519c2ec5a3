"""Sums of vectors by class: by the token itself, the token that follows, or a whole context."""

from typing import Self

import torch
from torch import Tensor

from headscan.statistics.accumulator import Accumulator, device_of

NO_BOUND = 2**62
"""A bound that every hash is below."""


class ClassSums(Accumulator):
    """Count, Σx, Σx/‖x‖, Σ‖x‖² and the number of zero vectors of every class seen so far, float64.

    The table grows with the classes that occur; a batch costs one `index_add_` of n rows. With
    `limit`, at most that many classes are kept: those whose numbers have the smallest hash, so that
    the choice is the same in every part of a stream and independent of the vectors. Memory: 16
    bytes·width a class.

    All properties are in the order of the labels, not of their first occurrence, so that a resumed
    run adds them up in the same order.

    >>> sums = ClassSums(2)
    >>> sums.update(torch.tensor([7, 3, 7]), torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]]))
    >>> sums.labels.tolist(), sums.counts.tolist(), sums.means().tolist(), sums.units[0].tolist()
    ([3, 7], [1, 2], [[0.0, 2.0], [2.0, 0.0]], [0.0, 1.0])
    """

    def __init__(self, width: int, *, limit: int | None = None, device: torch.device | str = "cpu"):
        self.width = width
        self.limit = limit
        self.device = torch.device(device)
        self._size = 0
        self._hash_bound = NO_BOUND
        # Tables with one row a class, in the order of first occurrence; rows from `_size` on are
        # free. The columns of `_scalars` are count, zeros, Σ‖x‖²; those of `_vectors` Σx, Σx/‖x‖.
        self._labels = torch.zeros(0, dtype=torch.int64, device=device)
        self._scalars = torch.zeros(0, 3, dtype=torch.float64, device=device)
        self._vectors = torch.zeros(0, 2, width, dtype=torch.float64, device=device)
        self._order = self._labels[:0]  # the rows in the order of their labels

    def __len__(self) -> int:
        self._trim()
        return self._size

    @property
    def labels(self) -> Tensor:
        self._trim()
        return self._labels[self._order]

    @property
    def counts(self) -> Tensor:
        return self._sorted_scalars()[:, 0].long()

    @property
    def zeros(self) -> Tensor:
        return self._sorted_scalars()[:, 1].long()

    @property
    def squares(self) -> Tensor:
        return self._sorted_scalars()[:, 2].contiguous()

    @property
    def sums(self) -> Tensor:
        self._trim()
        return self._vectors[:, 0][self._order]

    @property
    def units(self) -> Tensor:
        self._trim()
        return self._vectors[:, 1][self._order]

    def _sorted_scalars(self) -> Tensor:
        self._trim()
        return self._scalars[self._order]

    def _sorted_vectors(self) -> Tensor:
        self._trim()
        return self._vectors[self._order]

    def means(self) -> Tensor:
        """Return the mean of each class [C, width]."""
        return self.sums / self.counts[:, None]

    def update(self, labels: Tensor, rows: Tensor) -> None:
        """Add rows [n, width] of the classes [n]; labels below zero are left out."""
        labels = labels.to(self.device)
        rows = rows.detach().to(device=self.device, dtype=torch.float64)
        norms = torch.linalg.vector_norm(rows, dim=-1)
        units = rows * torch.where(norms > 0, 1 / norms, 0.0)[:, None]
        self.add(labels, norms, rows, units)

    def add(self, labels: Tensor, norms: Tensor, rows: Tensor, units: Tensor) -> None:
        """Add rows like `update`, with their norms [n] and their directions [n, width]."""
        used = labels >= 0
        if self.limit is not None:
            used &= _hash(labels) < self._hash_bound
        if not bool(used.all()):
            labels = labels[used]
            norms = norms[used]
            rows = rows[used]
            units = units[used]
        if not len(labels):
            return

        classes, inverse = torch.unique(labels, return_inverse=True)
        indices = self._rows_of(classes)[inverse]
        counts = torch.ones_like(norms)
        zeros = (norms == 0).double()
        scalars = torch.stack([counts, zeros, norms.square()], dim=-1)
        self._scalars.index_add_(0, indices, scalars)
        self._vectors[:, 0].index_add_(0, indices, rows)
        self._vectors[:, 1].index_add_(0, indices, units)

        # Trimming copies the table: it is done when the table is a quarter too large, or read.
        if self.limit is not None and self._size >= self.limit + self.limit // 4:
            self._trim()

    def _rows_of(self, labels: Tensor) -> Tensor:
        """Return the table's rows of different labels, after adding a row for each new label."""
        known_labels = self._labels[: self._size][self._order]
        known = torch.zeros_like(labels, dtype=torch.bool)
        rows = torch.empty_like(labels)
        if len(known_labels):
            position = torch.searchsorted(known_labels, labels).clamp(max=len(known_labels) - 1)
            known = known_labels[position] == labels
            rows[known] = self._order[position[known]]

        new_labels = labels[~known]
        size = self._size + len(new_labels)
        rows[~known] = torch.arange(self._size, size, device=self.device)
        self._reserve(size)
        self._labels[self._size : size] = new_labels
        self._size = size
        if len(new_labels):
            self._order = torch.argsort(self._labels[: self._size])
        return rows

    def _reserve(self, size: int) -> None:
        """Enlarge the tables to at least `size` rows; they double, so that this is rare."""
        capacity = len(self._labels)
        if size <= capacity:
            return
        added = max(size, 2 * capacity, 256) - capacity
        self._labels = torch.cat([self._labels, self._labels.new_zeros(added)])
        self._scalars = torch.cat([self._scalars, self._scalars.new_zeros(added, 3)])
        self._vectors = torch.cat([self._vectors, self._vectors.new_zeros(added, 2, self.width)])

    def _trim(self) -> None:
        """Keep the `limit` classes with the smallest hashes."""
        if self.limit is None or self._size <= self.limit:
            return
        hashes = _hash(self._labels[: self._size])
        smallest = torch.argsort(hashes)[: self.limit]
        self._hash_bound = int(hashes[smallest[-1]]) + 1
        for table in (self._labels, self._scalars, self._vectors):
            table[: self.limit] = table[smallest]
            table[self.limit : self._size] = 0
        self._size = self.limit
        self._order = torch.argsort(self._labels[: self.limit])

    def merge(self, other: "ClassSums") -> None:
        used = _hash(other.labels) < self._hash_bound
        labels = other.labels[used].to(self.device)
        if len(labels):
            rows = self._rows_of(labels)
            self._scalars.index_add_(0, rows, other._sorted_scalars()[used].to(self.device))
            self._vectors.index_add_(0, rows, other._sorted_vectors()[used].to(self.device))

    def without(self, part: "ClassSums") -> "ClassSums":
        """Return these sums less a part of them, for the classes that are kept here."""
        difference = self.restore(self.state())
        part_labels = part.labels.to(self.device)
        known = torch.isin(part_labels, difference.labels)
        rows = difference._rows_of(part_labels[known])
        scalars = part._sorted_scalars()[known].to(self.device)
        vectors = part._sorted_vectors()[known].to(self.device)
        difference._scalars.index_add_(0, rows, scalars, alpha=-1)
        difference._vectors.index_add_(0, rows, vectors, alpha=-1)
        return difference

    def state(self) -> dict[str, Tensor]:
        state = {"width": torch.tensor(self.width)}
        if self.limit is not None:
            state["limit"] = torch.tensor(self.limit)
        state["_labels"] = self.labels
        state["_scalars"] = self._sorted_scalars()
        state["_vectors"] = self._sorted_vectors()
        return state

    @classmethod
    def restore(cls, state: dict[str, Tensor]) -> Self:
        limit = int(state["limit"]) if "limit" in state else None
        sums = cls(int(state["width"]), limit=limit, device=device_of(state))
        sums._labels = state["_labels"].clone()
        sums._scalars = state["_scalars"].clone()
        sums._vectors = state["_vectors"].clone()
        sums._size = len(sums._labels)
        sums._order = torch.arange(sums._size, device=sums.device)
        return sums


def _hash(labels: Tensor) -> Tensor:
    """Return a fixed mixing of whole numbers to [0, 2^61).

    Multiply and fold, twice, with the constants of splitmix64 as signed numbers.
    """
    mixed = labels * -7046029254386353131
    mixed = (mixed ^ (mixed >> 29)) * -4658895280553007687
    return (mixed ^ (mixed >> 32)) & (2**61 - 1)
