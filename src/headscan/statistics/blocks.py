"""Accumulators of consecutive blocks of windows, in bounded memory."""

from collections.abc import Callable, Iterator
from typing import Generic, Self, TypeVar

import torch
from torch import Tensor

from headscan.statistics.accumulator import Accumulator, prefixed, unprefixed

A = TypeVar("A", bound=Accumulator)


class Blocks(Generic[A]):
    """At most `limit` consecutive blocks of equal length, each an accumulator such as `Sums`.

    The length of a block is counted in units (windows of text). Unit u belongs to block u // size.
    A unit beyond the last block merges neighbouring blocks and doubles `size`: memory stays
    bounded, and blocks depend neither on the order of the units nor on how the stream was split.

    `zero` returns an empty accumulator.
    """

    def __init__(self, limit: int, zero: Callable[[], A]):
        self.limit = limit
        self.zero = zero
        self.size = 1
        self._parts: dict[int, A] = {}

    def index(self, unit: int) -> int:
        """Return the block of a unit, after coarsening the blocks as far as this unit needs."""
        while unit // self.size >= self.limit:
            self._coarsen()
        return unit // self.size

    def __getitem__(self, unit: int) -> A:
        return self.at(self.index(unit))

    def at(self, index: int) -> A:
        """Return the accumulator of a block, which is made where there is none yet."""
        if index not in self._parts:
            self._parts[index] = self.zero()
        return self._parts[index]

    def items(self) -> list[tuple[int, A]]:
        """Return the occupied blocks with their indices, in the order of the stream."""
        return sorted(self._parts.items())

    def runs(self, windows: list[int]) -> Iterator[tuple[A, list[int]]]:
        """Yield the blocks of a batch's windows, each with the rows that belong to it."""
        self.index(max(windows))  # coarsening happens once, before any block is chosen
        rows_by_block: dict[int, list[int]] = {}
        for row, window in enumerate(windows):
            rows_by_block.setdefault(self.index(window), []).append(row)

        for rows in rows_by_block.values():
            yield self[windows[rows[0]]], rows

    def parts(self) -> list[A]:
        """Return the occupied blocks in the order of the stream."""
        return [part for _, part in self.items()]

    def total(self) -> A:
        """Return the merge of all blocks."""
        total = self.zero()
        for part in self.parts():
            total.merge(part)
        return total

    def merge(self, other: "Blocks[A]") -> None:
        """Add the blocks of another part of the stream."""
        while self.size < other.size:
            self._coarsen()
        for index, part in other.items():
            self[index * other.size].merge(part)

    def _coarsen(self) -> None:
        """Merge neighbouring blocks and double their size."""
        self.size *= 2
        fine_parts = self.items()
        self._parts = {}
        for index, part in fine_parts:
            if index // 2 in self._parts:
                self._parts[index // 2].merge(part)
            else:
                self._parts[index // 2] = part

    def state(self) -> dict[str, Tensor]:
        """Return the size, the limit and the states of the blocks."""
        state = {"size": torch.tensor([self.size, self.limit])}
        for index, part in self.items():
            state |= prefixed(str(index), part.state())
        return state

    def restored(self, state: dict[str, Tensor]) -> Self:
        """Return blocks of the same kind with this state."""
        size, limit = state["size"].tolist()
        blocks = type(self)(limit, self.zero)
        blocks.size = size
        zero = self.zero()
        indices = {int(name.split("/")[0]) for name in state if "/" in name}
        for index in sorted(indices):
            blocks._parts[index] = zero.restored(unprefixed(str(index), state))
        return blocks


class Octaves(Blocks[A]):
    """The last `limit` blocks of lengths that double.

    Block k holds the units 2^(k−1) to 2^k − 1. The first block, of index `size`, also holds all
    units before it. The sum of the blocks up to k is that of the first 2^k units.
    """

    def index(self, unit: int) -> int:
        while unit.bit_length() >= self.size + self.limit:
            self._coarsen()
        return max(unit.bit_length(), self.size)

    def merge(self, other: Blocks[A]) -> None:
        while self.size < other.size:
            self._coarsen()
        for index, part in other.items():
            self.at(max(index, self.size)).merge(part)

    def _coarsen(self) -> None:
        """Merge the first block into the next one."""
        first = self._parts.pop(self.size, None)
        self.size += 1
        if first is None:
            return
        if self.size in self._parts:
            first.merge(self._parts[self.size])
        self._parts[self.size] = first
