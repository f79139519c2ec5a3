"""Sums by name, kept by blocks of windows: what most measures beyond a cloud need, and enough for an interval."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import torch
from torch import Tensor

from headscan.statistics.accumulator import Accumulator, prefixed, unprefixed
from headscan.statistics.blocks import Blocks
from headscan.statistics.site_batch import SiteBatch

__all__ = ["REST", "BlockedTally", "Tally"]

BLOCKS = 16
REST = "_rest"
"""What the name of a sum ends in that leaves position 0 of each window out."""


class Tally(Accumulator):
    """Named float64 sums of any shape; they merge by addition, and a part can be taken away again.

    >>> tally = Tally({"pairs": (), "sum": (2,)})
    >>> tally["sum"] += torch.tensor([1.0, 2.0])
    >>> tally.merge(tally); tally["sum"].tolist()
    [2.0, 4.0]
    """

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], device: torch.device | str = "cpu"):
        self.sums = {name: torch.zeros(shape, dtype=torch.float64, device=device) for name, shape in shapes.items()}

    def __getitem__(self, name: str) -> Tensor:
        return self.sums[name]

    def __setitem__(self, name: str, value: Tensor) -> None:
        self.sums[name] = value

    def merge(self, other: Tally) -> None:
        """Add another tally of the same names and shapes."""
        for name, value in other.sums.items():
            self.sums[name] = self.sums[name] + value.to(self.sums[name].device)

    def without(self, part: Tally) -> Tally:
        """This tally less a part of it."""
        new = Tally({})
        new.sums = {name: value - part.sums[name] for name, value in self.sums.items()}
        return new

    def view(self, suffix: str) -> Tally:
        """The sums whose names end in `suffix`, under their names without it; the same tensors.

        >>> Tally({"pairs": (), "pairs_rest": ()}).view("_rest").sums.keys()
        dict_keys(['pairs'])
        """
        new = Tally({})
        new.sums = {name.removesuffix(suffix): value for name, value in self.sums.items() if name.endswith(suffix)}
        return new

    def clear(self) -> None:
        """Become empty again."""
        for value in self.sums.values():
            value.zero_()

    def state(self) -> dict[str, Tensor]:
        """The sums by their names."""
        return dict(self.sums)

    @classmethod
    def restore(cls, state: dict[str, Tensor]) -> Self:
        """The inverse of `state`."""
        new = cls({})
        new.sums = {name: value.clone() for name, value in state.items()}
        return new


class BlockedTally(Accumulator):
    """A tally for each of at most 16 blocks of consecutive windows; subclasses say what is summed.

    A subclass gives `shapes(width)` and `measure(batch)`: sums of each of the batch's windows, each of shape [B, ...].
    Sums whose name ends in `_rest` leave position 0 of each window out; `Tally.view("_rest")` shows those alone.
    """

    def __init__(self, width: int, device: torch.device | str = "cpu"):
        self.width, self.device = width, torch.device(device)
        self.blocks: Blocks[Tally] = Blocks(BLOCKS, self._zero)

    def shapes(self, width: int) -> dict[str, tuple[int, ...]]:
        """The names and shapes of the sums."""
        raise NotImplementedError

    def measure(self, batch: SiteBatch) -> dict[str, Tensor]:
        """What each window of a batch adds to every sum, [B, ...]."""
        raise NotImplementedError

    def _zero(self) -> Tally:
        return Tally(self.shapes(self.width), self.device)

    def update(self, batch: SiteBatch) -> None:
        """Add a batch."""
        self.blocks.index(max(batch.windows))
        found = self.measure(batch)
        runs: dict[int, list[int]] = {}
        for row, window in enumerate(batch.windows):
            runs.setdefault(self.blocks.index(window), []).append(row)
        for members in runs.values():
            part = self.blocks[batch.windows[members[0]]]
            for name, value in found.items():
                part[name] += value.sum(0) if len(members) == len(value) else value[members].sum(0)

    def parts(self) -> list[Tally]:
        """The tallies of the occupied blocks, in the order of the stream."""
        return self.blocks.parts()

    def total(self) -> Tally:
        """All blocks together."""
        return self.blocks.total()

    def merge(self, other: BlockedTally) -> None:
        """Add the blocks of another part of the same stream."""
        self.blocks.merge(other.blocks)

    def state(self) -> dict[str, Tensor]:
        """Width and blocks."""
        return {"width": torch.tensor(self.width)} | prefixed("blocks", self.blocks.state())

    @classmethod
    def restore(cls, state: dict[str, Tensor]) -> Self:
        """The inverse of `state`."""
        new = cls(int(state["width"]), state["width"].device)
        new.blocks = Blocks.restore(unprefixed("blocks", state), new._zero)
        return new
