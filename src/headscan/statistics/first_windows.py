"""The ids of the first windows of a text, for what must run the model again on the same text."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

from headscan.statistics.accumulator import Accumulator

__all__ = ["FirstWindows"]


class FirstWindows(Accumulator):
    """Ids of the windows with the smallest numbers, at most `tokens` tokens of them; merging keeps the smallest of both.

    >>> kept = FirstWindows(4)
    >>> kept.update(torch.tensor([[1, 2], [3, 4], [5, 6]]), [2, 0, 1])
    >>> kept.ids.tolist()
    [[3, 4], [5, 6]]
    """

    def __init__(self, tokens: int = 2**19):
        self.tokens = tokens
        self.numbers = torch.zeros(0, dtype=torch.int64)
        self.ids = torch.zeros(0, 0, dtype=torch.int64)

    def update(self, ids: Tensor, windows: list[int]) -> None:
        """Add windows [B, T] with their numbers."""
        limit = self.tokens // ids.shape[1]
        if len(self.numbers) >= limit and min(windows) > int(self.numbers[-1]):
            return
        mine = self.ids if len(self.ids) else ids.new_zeros(0, ids.shape[1]).cpu()
        numbers = torch.cat([self.numbers, torch.tensor(windows)])
        order = torch.argsort(numbers)[:limit]
        self.numbers, self.ids = numbers[order], torch.cat([mine, ids.cpu()])[order]

    def merge(self, other: FirstWindows) -> None:
        """Keep the smallest numbers of both."""
        if len(other.numbers):
            self.update(other.ids, other.numbers.tolist())

    def state(self) -> dict[str, Tensor]:
        """Tensors `tokens`, `numbers` and `ids`."""
        return {"tokens": torch.tensor(self.tokens), "numbers": self.numbers, "ids": self.ids}

    @classmethod
    def restore(cls, state: dict[str, Tensor]) -> Self:
        """The inverse of `state`."""
        new = cls(int(state["tokens"]))
        new.numbers, new.ids = state["numbers"].clone(), state["ids"].clone()
        return new
