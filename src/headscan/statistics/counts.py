"""Statistics by token id: how often each token stood in the text, and the sum of its vectors."""

from __future__ import annotations

import torch
from torch import Tensor

from headscan.statistics.accumulator import Accumulator, Blocks

BLOCKS = 8


class TokenCounts(Accumulator):
    """How often each token id was seen; int64 [vocabulary].

    >>> counts = TokenCounts(4)
    >>> counts.update(torch.tensor([[0, 1], [1, 3]]))
    >>> counts.counts.tolist()
    [1, 2, 0, 1]
    """

    arguments, fields = ("vocabulary",), ("counts",)

    def __init__(self, vocabulary: int):
        self.vocabulary = vocabulary
        self.counts = torch.zeros(vocabulary, dtype=torch.int64)

    def update(self, ids: Tensor) -> None:
        """Count token ids of any shape, each in [0, vocabulary)."""
        self.counts += torch.bincount(ids.reshape(-1).cpu(), minlength=len(self.counts))

    def merge(self, other: TokenCounts) -> None:
        self.counts += other.counts

    def clear(self) -> None:
        self.counts.zero_()


class BlockedCounts(Accumulator):
    """`TokenCounts` of each of at most 8 blocks of consecutive windows, so that what counts say can have an interval.

    >>> counts = BlockedCounts(3)
    >>> counts.update(torch.tensor([[0, 1], [1, 2]]), [0, 1])
    >>> [part.tolist() for part in counts.parts()]
    [[1, 1, 0], [0, 1, 1]]
    """

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

    def merge(self, other: BlockedCounts) -> None:
        self.blocks.merge(other.blocks)


class TokenSums(Accumulator):
    """Count and Σx of the vectors that stood at each token id; float64 [vocabulary, width].

    One `index_add_` a batch: the dense one-hot product that some tools use for it costs vocabulary times more.

    >>> sums = TokenSums(3, 2)
    >>> sums.update(torch.tensor([2, 2]), torch.tensor([[1.0, 0.0], [3.0, 1.0]]))
    >>> sums.means()[2].tolist(), sums.counts.tolist()
    ([2.0, 0.5], [0, 0, 2])
    """

    arguments, fields = ("vocabulary", "width"), ("counts", "sums")

    def __init__(self, vocabulary: int, width: int, device: torch.device | str = "cpu"):
        self.vocabulary, self.width = vocabulary, width
        self.counts = torch.zeros(vocabulary, dtype=torch.int64, device=device)
        self.sums = torch.zeros(vocabulary, width, dtype=torch.float64, device=device)

    def update(self, ids: Tensor, states: Tensor) -> None:
        """Add states [..., width] that stand at ids [...]."""
        ids = ids.reshape(-1).to(self.sums.device)
        rows = states.detach().reshape(len(ids), self.sums.shape[1]).to(device=self.sums.device, dtype=torch.float64)
        self.sums.index_add_(0, ids, rows)
        self.counts += torch.bincount(ids, minlength=len(self.counts))

    def means(self) -> Tensor:
        """Mean vector of each token id [vocabulary, width]; NaN rows for ids never seen."""
        return self.sums / self.counts[:, None]

    def merge(self, other: TokenSums) -> None:
        self.counts += other.counts.to(self.counts.device)
        self.sums += other.sums.to(self.sums.device)
