"""The sums that the first measures need of a set of vectors: a group, so sets can be added and taken away."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

from headscan.statistics.accumulator import Accumulator, prefixed, unprefixed
from headscan.statistics.gram import Gram

__all__ = ["Sums"]


class Sums(Accumulator):
    """Count, Σx, Σx/‖x‖, Σ‖x‖, Σ‖x‖² and, where asked, Σxxᵀ of a set of vectors of one width; all in float64.

    Rows of norm zero have no direction: they are counted in `zeros` and left out of Σx/‖x‖.

    >>> s = Sums.of_rows(torch.tensor([[0.0, 4.0], [0.0, 0.0]]))
    >>> s.count, s.zeros, s.norm, s.unit.tolist()
    (2, 1, 4.0, [0.0, 1.0])
    """

    def __init__(
        self, width: int, *, gram: bool = True, few: bool = False, device: torch.device | str = "cpu"
    ):  # `few`: see Gram
        self.width = width
        self.scalars = torch.zeros(4, dtype=torch.float64, device=device)  # count, zeros, Σ‖x‖, Σ‖x‖²
        self.unit = torch.zeros(width, dtype=torch.float64, device=device)
        self.total = torch.zeros(width, dtype=torch.float64, device=device)
        self.gram = Gram(width, device, few=few) if gram else None

    @property
    def count(self) -> int:
        """Number of vectors."""
        return int(self.scalars[0])

    @property
    def zeros(self) -> int:
        """Number of vectors of norm zero."""
        return int(self.scalars[1])

    @property
    def norm(self) -> float:
        """Σ‖x‖."""
        return float(self.scalars[2])

    @property
    def square(self) -> float:
        """Σ‖x‖²."""
        return float(self.scalars[3])

    @classmethod
    def of_rows(cls, rows: Tensor, *, gram: bool = True) -> Self:
        """The sums of the rows of a matrix [n, width]."""
        rows = rows.double()
        norms = torch.linalg.vector_norm(rows, dim=-1)
        new = cls(rows.shape[1], gram=gram, device=rows.device)
        new.scalars += torch.stack(
            [norms.new_tensor(float(len(norms))), (norms == 0).sum().double(), norms.sum(), norms.square().sum()]
        )
        new.unit += torch.where(norms > 0, 1 / norms, 0.0) @ rows
        new.total += rows.sum(0)
        if new.gram is not None:
            new.gram.add(rows, new.total)
        return new

    def merge(self, other: Sums) -> None:
        """Add another set; shapes must agree."""
        self._combine(other, 1.0)

    def weighed(self, other: Sums, weight: float) -> Self:
        """The sums of this set with another one added `weight` times; the counts need be no whole numbers then."""
        new = self.copy()
        new._combine(other, weight)
        return new

    def without(self, other: Sums) -> Self:
        """The sums of this set less a part of it."""
        return self.weighed(other, -1.0)

    def clear(self) -> None:
        """Become the empty set again, in the same memory."""
        for tensor in (self.scalars, self.unit, self.total):
            tensor.zero_()
        if self.gram is not None:
            self.gram.clear()

    def copy(self) -> Self:
        """An independent copy."""
        new = type(self)(self.width, gram=self.gram is not None, device=self.unit.device)
        new._combine(self, 1.0)
        return new

    def _combine(self, other: Sums, sign: float) -> None:
        if self.width != other.width:
            raise ValueError(f"sums of width {self.width} and {other.width} do not add")
        self.scalars.add_(other.scalars.to(self.scalars.device), alpha=sign)
        self.unit.add_(other.unit.to(self.unit.device), alpha=sign)
        self.total.add_(other.total.to(self.total.device), alpha=sign)
        if self.gram is not None:
            if other.gram is None:
                raise ValueError("sums without a Gram matrix cannot be added to sums with one")
            self.gram.combine(other.gram, sign)

    def state(self) -> dict[str, Tensor]:
        """Tensors `scalars`, `unit`, `total` and those of the Gram matrix."""
        gram = {} if self.gram is None else prefixed("gram", self.gram.state())
        return {"scalars": self.scalars, "unit": self.unit, "total": self.total, **gram}

    @classmethod
    def restore(cls, state: dict[str, Tensor]) -> Self:
        """The inverse of `state`."""
        new = cls(len(state["unit"]), gram=False, device=state["unit"].device)
        new.scalars, new.unit, new.total = (state[name].clone() for name in ("scalars", "unit", "total"))
        gram = unprefixed("gram", state)
        new.gram = Gram.restore(gram) if gram else None
        return new
