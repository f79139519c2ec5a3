"""How often each token id stood in the text."""

from __future__ import annotations

import torch
from torch import Tensor

from headscan.statistics.accumulator import Accumulator, Blocks

BLOCKS = 8


class TokenCounts(Accumulator):
    """How often each token id was seen; int64 [vocabulary]."""

    arguments, fields = ("vocabulary",), ("counts",)

    def __init__(self, vocabulary: int):
        self.vocabulary = vocabulary
        self.counts = torch.zeros(vocabulary, dtype=torch.int64)

    def update(self, ids: Tensor) -> None:
        """Count token ids of any shape, each in [0, vocabulary)."""
        self.counts += torch.bincount(ids.reshape(-1).cpu(), minlength=len(self.counts))


class BlockedCounts(Accumulator):
    """`TokenCounts` of each of at most 8 blocks of consecutive windows, so that what counts say can have an interval."""

    arguments, fields = ("vocabulary",), ("blocks",)

    def __init__(self, vocabulary: int):
        self.vocabulary = vocabulary
        self.blocks: Blocks[TokenCounts] = Blocks(BLOCKS, self._zero)

    def _zero(self) -> TokenCounts:
        return TokenCounts(self.vocabulary)

    def update(self, ids: Tensor, windows: list[int]) -> None:
        """Add windows [B, T] with their numbers."""
        for part, members in self.blocks.runs(windows):
            part.update(ids[members])

    def parts(self) -> list[Tensor]:
        """The counts [vocabulary] of the occupied blocks, in the order of the stream."""
        return [part.counts for part in self.blocks.parts()]
