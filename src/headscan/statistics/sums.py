"""The sums of a set of vectors: count, direction, mean, norms and second moment."""

from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor

from headscan.statistics.accumulator import Accumulator, prefixed, unprefixed
from headscan.statistics.gram import Gram
from headscan.statistics.pieces import token_sums
from headscan.statistics.sinks import CELLS

AT_ONCE = 2**26
"""Numbers of a matrix that are converted to float64 at a time."""


class Sums(Accumulator):
    """Count, Σx, Σx/‖x‖, Σ‖x‖, Σ‖x‖² and, on request, Σxxᵀ of vectors of one width, float64.

    Rows of norm zero have no direction: they are counted in `zeros` and left out of Σx/‖x‖. `sums`
    holds all but Σxxᵀ, in the order of `token_sums`.

    >>> s = Sums.of_rows(torch.tensor([[0.0, 4.0], [0.0, 0.0]]))
    >>> s.count, s.zeros, s.norm, s.unit.tolist()
    (2, 1, 4.0, [0.0, 1.0])
    """

    def __init__(
        self, width: int, *, gram: bool = True, few: int = 0, device: torch.device | str = "cpu"
    ):
        self.width = width
        self.sums = torch.zeros(2 * width + 4, dtype=torch.float64, device=device)
        self.gram = Gram(width, device, few=few) if gram else None

    @property
    def unit(self) -> Tensor:
        return self.sums[: self.width]

    @property
    def total(self) -> Tensor:
        return self.sums[self.width : -4]

    @property
    def scalars(self) -> Tensor:
        """Count, zeros, Σ‖x‖, Σ‖x‖²."""
        return self.sums[-4:]

    @property
    def count(self) -> int:
        return int(self.scalars[0])

    @property
    def zeros(self) -> int:
        return int(self.scalars[1])

    @property
    def norm(self) -> float:
        return float(self.scalars[2])

    @property
    def square(self) -> float:
        return float(self.scalars[3])

    @classmethod
    def of_rows(cls, rows: Tensor, *, gram: bool = True) -> Self:
        """Return the sums of the rows of a matrix [n, width]."""
        sums = cls(rows.shape[1], gram=gram, device=rows.device)
        at_once = max(1, AT_ONCE // max(1, rows.shape[1]))
        for piece in rows.split(at_once):
            vectors = piece.double()
            norms = torch.linalg.vector_norm(vectors, dim=-1)
            totals = token_sums(vectors, norms).sum(0)
            sums.sums += totals
            if sums.gram is not None:
                sums.gram.add(vectors, totals[sums.width : -4])
        return sums

    @property
    def second_moments(self) -> Gram:
        """Σxxᵀ, which these sums must have."""
        assert self.gram is not None
        return self.gram

    def merge(self, other: "Sums") -> None:
        self._combine(other, 1.0)

    def weighed(self, other: "Sums", weight: float) -> Self:
        """Return these sums with another set added `weight` times; counts may become fractions."""
        sums = self.copy()
        sums._combine(other, weight)
        return sums

    def without(self, other: "Sums") -> Self:
        """Return the sums of this set less a part of it."""
        return self.weighed(other, -1.0)

    def copy(self) -> Self:
        """Return an independent copy."""
        copy = type(self)(self.width, gram=self.gram is not None, device=self.sums.device)
        copy._combine(self, 1.0)
        return copy

    def _combine(self, other: "Sums", weight: float) -> None:
        if self.width != other.width:
            raise ValueError(f"sums of width {self.width} and {other.width} do not add")
        self.sums.add_(other.sums.to(self.sums.device), alpha=weight)
        if self.gram is not None:
            if other.gram is None:
                raise ValueError("sums without a Gram matrix cannot be added to sums with one")
            self.gram.combine(other.gram, weight)

    def state(self) -> dict[str, Tensor]:
        state = {"sums": self.sums}
        if self.gram is not None:
            state |= prefixed("gram", self.gram.state())
        return state

    @classmethod
    def restore(cls, state: dict[str, Tensor]) -> Self:
        vector = state["sums"]
        sums = cls(len(vector) // 2 - 2, gram=False, device=vector.device)
        sums.sums = vector.clone()
        gram = unprefixed("gram", state)
        if gram:
            sums.gram = Gram.restore(gram)
        return sums


class CellSums(Accumulator):
    """`Sums` of disjoint sets of tokens, some of `CELLS`; a few vectors are stored as they are.

    The rows of `table` [cells, 2·width + 4] are the `sums` of the cells.
    """

    def __init__(self, width: int, cells: Sequence[str], *, device: torch.device | str = "cpu"):
        self._set({cell: Sums(width, few=5 * width // 8, device=device) for cell in cells})

    def _set(self, cells: dict[str, Sums]) -> None:
        self.cells = cells
        self.table = torch.stack([sums.sums for sums in cells.values()])
        for sums, row in zip(cells.values(), self.table, strict=True):
            sums.sums = row

    def merge(self, other: "CellSums") -> None:
        for cell, sums in self.cells.items():
            sums.merge(other.cells[cell])

    def state(self) -> dict[str, Tensor]:
        state: dict[str, Tensor] = {}
        for cell, sums in self.cells.items():
            state |= prefixed(f"cells.{cell}", sums.state())
        return state

    @classmethod
    def restore(cls, state: dict[str, Tensor]) -> Self:
        cells = {}
        for cell in CELLS:
            sums = unprefixed(f"cells.{cell}", state)
            if sums:
                cells[cell] = Sums.restore(sums)
        cell_sums = cls(0, list(cells))
        cell_sums._set(cells)
        return cell_sums
