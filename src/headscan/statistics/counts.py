"""Counts of token ids, by blocks of windows, and the ids of the first windows of a text."""

from functools import partial
from typing import Self

import torch
from torch import Tensor
from torch.nn.functional import pad

from headscan.statistics.accumulator import Accumulator, prefixed, unprefixed
from headscan.statistics.blocks import Blocks

COUNT_BLOCKS = 8


class TokenCounts(Accumulator):
    """The number of occurrences of each token id; int64 [vocabulary]."""

    def __init__(self, vocabulary: int):
        self.vocabulary = vocabulary
        self.counts = torch.zeros(vocabulary, dtype=torch.int64)

    def update(self, ids: Tensor) -> None:
        """Count token ids of any shape, each in [0, vocabulary)."""
        self.counts += torch.bincount(ids.reshape(-1).cpu(), minlength=len(self.counts))

    def merge(self, other: "TokenCounts") -> None:
        self.counts += other.counts.to(self.counts.device)

    def state(self) -> dict[str, Tensor]:
        return {"vocabulary": torch.tensor(self.vocabulary), "counts": self.counts}

    @classmethod
    def restore(cls, state: dict[str, Tensor]) -> Self:
        counts = cls(int(state["vocabulary"]))
        counts.counts = state["counts"].clone()
        return counts


class BlockedCounts(Accumulator):
    """`TokenCounts` of each of at most 8 blocks of consecutive windows, so that numbers made of
    counts can have an interval.
    """

    def __init__(self, vocabulary: int):
        self.vocabulary = vocabulary
        self.blocks: Blocks[TokenCounts] = Blocks(COUNT_BLOCKS, partial(TokenCounts, vocabulary))

    def update(self, ids: Tensor, windows: list[int]) -> None:
        """Add windows [B, T] with their numbers."""
        for counts, rows in self.blocks.runs(windows):
            counts.update(ids[rows])

    def parts(self) -> list[Tensor]:
        """Return the counts [vocabulary] of the occupied blocks, in the order of the stream."""
        return [part.counts for part in self.blocks.parts()]

    def merge(self, other: "BlockedCounts") -> None:
        self.blocks.merge(other.blocks)

    def state(self) -> dict[str, Tensor]:
        return {"vocabulary": torch.tensor(self.vocabulary)} | prefixed(
            "blocks", self.blocks.state()
        )

    @classmethod
    def restore(cls, state: dict[str, Tensor]) -> Self:
        counts = cls(int(state["vocabulary"]))
        counts.blocks = counts.blocks.restored(unprefixed("blocks", state))
        return counts


class FirstWindows(Accumulator):
    """Ids of the windows with the smallest numbers, at most `tokens` tokens of them.

    Shorter windows end with −1; `alike` are those of the commonest length, without it.
    """

    def __init__(self, tokens: int = 2**19):
        self.tokens = tokens
        self.numbers = torch.zeros(0, dtype=torch.int64)
        self.ids = torch.zeros(0, 0, dtype=torch.int64)

    def update(self, ids: Tensor, windows: list[int]) -> None:
        """Add windows [B, T] with their numbers."""
        longest = max(ids.shape[1], self.ids.shape[1])
        limit = self.tokens // longest
        if len(self.numbers) >= limit and min(windows) > int(self.numbers[-1]):
            return
        old_ids = pad(self.ids, (0, longest - self.ids.shape[1]), value=-1)
        new_ids = pad(ids.cpu(), (0, longest - ids.shape[1]), value=-1)
        numbers = torch.cat([self.numbers, torch.tensor(windows)])
        order = torch.argsort(numbers)[:limit]
        self.numbers = numbers[order]
        self.ids = torch.cat([old_ids, new_ids])[order]

    @property
    def alike(self) -> Tensor:
        """The windows of the commonest length [n, length]."""
        lengths = (self.ids >= 0).sum(1)
        different_lengths, counts = torch.unique(lengths, return_counts=True)
        if not len(different_lengths):
            return self.ids[:, :0]
        commonest = int(different_lengths[counts.argmax()])
        return self.ids[lengths == commonest, :commonest]

    def merge(self, other: "FirstWindows") -> None:
        if len(other.numbers):
            self.update(other.ids, other.numbers.tolist())

    def state(self) -> dict[str, Tensor]:
        return {
            "tokens": torch.tensor(self.tokens),
            "numbers": self.numbers,
            "ids": self.ids,
        }

    @classmethod
    def restore(cls, state: dict[str, Tensor]) -> Self:
        windows = cls(int(state["tokens"]))
        windows.numbers = state["numbers"].clone()
        windows.ids = state["ids"].clone()
        return windows
