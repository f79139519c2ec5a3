"""A stream cut into a bounded number of consecutive blocks, so that a confidence interval can be taken over them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, Self, TypeVar

import torch
from torch import Tensor

from headscan.statistics.accumulator import prefixed, unprefixed

__all__ = ["Blocks"]


class Clearable(Protocol):
    """An accumulator that can become empty again in the same memory."""

    def merge(self, other: Self, /) -> None: ...
    def clear(self) -> None: ...
    def state(self) -> dict[str, Tensor]: ...
    @classmethod
    def restore(cls, state: dict[str, Tensor]) -> Self: ...


B = TypeVar("B", bound=Clearable)


class Blocks(Generic[B]):
    """At most `limit` consecutive blocks of equal length, in units (windows of text); each is an accumulator such as `Sums`.

    Unit u belongs to block u // size. When a unit beyond the last block arrives, neighbouring blocks are merged and
    `size` doubles: memory stays bounded, and which unit stands in which block depends on the units alone, not on the
    order in which they came or on how the stream was split. Neighbouring windows often come from one document; keeping
    them in one block is what makes an interval over blocks honest about their dependence.

    >>> from headscan.statistics import Sums
    >>> blocks = Blocks(2, lambda: Sums(1, gram=False))
    >>> for unit in range(5):
    ...     blocks[unit].merge(Sums.of_rows(torch.ones(1, 1), gram=False))
    >>> blocks.size, [(index, part.count) for index, part in blocks.items()]
    (4, [(0, 4), (1, 1)])
    """

    def __init__(self, limit: int, zero: Callable[[], B]):
        if limit < 1:
            raise ValueError("at least one block is needed")
        self.limit, self.zero, self.size = limit, zero, 1
        self._parts: dict[int, B] = {}
        # Blocks emptied by coarsening, to be used again: freeing and allocating matrices between the much larger
        # tensors of a forward pass fragments memory (measured: 130 MiB for 80 MiB of blocks).
        self._spare: list[B] = []

    def index(self, unit: int) -> int:
        """The block of a unit, after the blocks have been coarsened as far as this unit needs."""
        while unit // self.size >= self.limit:
            self._coarsen()
        return unit // self.size

    def __getitem__(self, unit: int) -> B:
        index = self.index(unit)
        if index not in self._parts:
            self._parts[index] = self._spare.pop() if self._spare else self.zero()
        return self._parts[index]

    def items(self) -> list[tuple[int, B]]:
        """Occupied blocks, in the order of the stream."""
        return sorted(self._parts.items())

    def parts(self) -> list[B]:
        """The sums of the occupied blocks, in the order of the stream."""
        return [part for _, part in self.items()]

    def total(self) -> B:
        """All blocks merged."""
        whole = self.zero()
        for part in self.parts():
            whole.merge(part)
        return whole

    def merge(self, other: Blocks[B]) -> None:
        """Add the blocks of another part of the same stream (unit numbers are global)."""
        while self.size < other.size:
            self._coarsen()
        for index, part in other.items():
            self[index * other.size].merge(part)

    def _coarsen(self) -> None:
        self.size *= 2
        old, self._parts = self.items(), {}
        for index, part in old:
            if index // 2 in self._parts:
                self._parts[index // 2].merge(part)
                part.clear()
                self._spare.append(part)
            else:
                self._parts[index // 2] = part

    def state(self) -> dict[str, Tensor]:
        """Tensor `size`, and each block's state under its index."""
        state = {"size": torch.tensor([self.size, self.limit])}
        for index, part in self.items():
            state |= prefixed(str(index), part.state())
        return state

    @classmethod
    def restore(cls, state: dict[str, Tensor], zero: Callable[[], B]) -> Self:
        """The inverse of `state`."""
        size, limit = state["size"].tolist()
        new = cls(limit, zero)
        new.size = size
        for index in sorted({int(name.split("/")[0]) for name in state if "/" in name}):
            new._parts[index] = type(zero()).restore(unprefixed(str(index), state))
        return new
