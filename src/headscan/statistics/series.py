"""Numbers of consecutive windows, summed in groups: a series short enough to keep, whose dependence can be measured."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

from headscan.statistics.accumulator import Accumulator

__all__ = ["GROUPS", "Series"]

GROUPS = 512


class Series(Accumulator):
    """At most 512 sums of consecutive windows, each of `columns` numbers, float64.

    Window w belongs to group w // size; where a window beyond the last group arrives, neighbours are added and `size`
    doubles. So memory is bounded and nothing depends on the order in which windows came.

    >>> series = Series(1)
    >>> series.add(torch.ones(3, 1), [0, 1, 1023])
    >>> series.size, series.table[:, 0].nonzero().flatten().tolist(), series.table.sum().item()
    (2, [0, 511], 3.0)
    """

    def __init__(self, columns: int):
        self.size = 1
        self.table = torch.zeros(GROUPS, columns, dtype=torch.float64)

    def add(self, values: Tensor, windows: list[int]) -> None:
        """Add the numbers [B, columns] of the windows with these global numbers."""
        self._reach(max(windows) // GROUPS + 1)
        self.table.index_add_(0, torch.tensor(windows) // self.size, values.double().cpu())

    def merge(self, other: Series) -> None:
        """Add the series of other windows of the same stream."""
        self._reach(other.size)
        folded = other.table.reshape(GROUPS * other.size // self.size, -1, other.table.shape[1]).sum(1)
        self.table[: len(folded)] += folded

    def _reach(self, size: int) -> None:
        while self.size < size:
            self.size *= 2
            folded = self.table[::2] + self.table[1::2]
            self.table = torch.cat([folded, torch.zeros_like(folded)])

    def state(self) -> dict[str, Tensor]:
        """Tensors `size` and `table`."""
        return {"size": torch.tensor(self.size), "table": self.table}

    @classmethod
    def restore(cls, state: dict[str, Tensor]) -> Self:
        """The inverse of `state`."""
        new = cls(state["table"].shape[1])
        new.size, new.table = int(state["size"]), state["table"].clone().cpu()
        return new
