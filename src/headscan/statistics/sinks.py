"""Sink tokens: few tokens whose vectors are many times longer than all others', and that speak for themselves alone.

Attention that is not needed anywhere goes to them; in large models they carry nearly all of a block's energy (massive
activations, Sun et al. 2024, arXiv:2402.17762). So every statistic is kept apart for them and for the other tokens.
"""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

from headscan.statistics.accumulator import Accumulator

__all__ = ["CELLS", "FACTOR", "GROUPS", "Occurrences", "lengths", "sinks"]

FACTOR = 3.0
"""A token is a sink where its vector is longer than so many times the median of its window at that site.

Measured: of Qwen2.5-Coder-1.5B the first token has 3.2 to 270 medians at blocks 1 to 27, all others at most 1.9; of models
without sinks (all-mpnet-base-v2, the embedded ones) no token has more than 2.2."""

CELLS = ("ordinary", "first", "sink", "first_sink")
"""The disjoint sets of tokens that sums are kept of: `first` is position 0 of a window."""

GROUPS = {"all": (0, 1, 2, 3), "without_first": (0, 2), "without_sinks": (0, 1)}
"""The sets that measures are taken of, as unions of cells: nothing is ever taken away from a sum."""


def lengths(states: Tensor) -> Tensor:
    """The lengths [B, T] of states [B, T, d], in float32 at least."""
    found: Tensor = torch.linalg.vector_norm(states, dim=-1, dtype=torch.promote_types(states.dtype, torch.float32))
    return found


def sinks(states: Tensor, norms: Tensor | None = None) -> Tensor:
    """Which tokens are sinks, bool [B, T], of the states [B, T, d] of whole windows; `norms`: their `lengths`, if known.

    The rule looks at the token's own window only, so it gives the same for any split of the text. Of an even number of
    tokens the median is the lower one.

    >>> sinks(torch.tensor([[[9.0], [1.0], [1.0], [-7.0], [2.0]], [[1.0], [1.0], [1.0], [1.0], [1.0]]]))[0].tolist()
    [True, False, False, True, False]
    """
    norms = lengths(states) if norms is None else norms
    median = norms.median(dim=1, keepdim=True).values
    found: Tensor = (norms > FACTOR * median) & (median > 0)
    return found


class Occurrences(Accumulator):
    """How often each number occurred; memory grows with the different ones.

    >>> seen = Occurrences()
    >>> seen.update(torch.tensor([7, 3, 7]))
    >>> seen.most()
    [(7, 2), (3, 1)]
    """

    def __init__(self) -> None:
        self.values = torch.zeros(0, dtype=torch.int64)
        self.counts = torch.zeros(0, dtype=torch.int64)

    def update(self, values: Tensor) -> None:
        """Add numbers, int64 [n]."""
        if len(values):
            self._add(values.cpu(), torch.ones(len(values), dtype=torch.int64))

    def merge(self, other: Occurrences) -> None:
        """Add the numbers that another has seen."""
        self._add(other.values, other.counts)

    def _add(self, values: Tensor, counts: Tensor) -> None:
        self.values, place = torch.cat([self.values, values]).unique(return_inverse=True)
        self.counts = torch.zeros_like(self.values).index_add_(0, place, torch.cat([self.counts, counts]))

    def most(self, limit: int = 10) -> list[tuple[int, int]]:
        """The most frequent numbers with their counts; of equal ones the smaller number first."""
        order = torch.argsort(self.counts, descending=True, stable=True)[:limit]
        return list(zip(self.values[order].tolist(), self.counts[order].tolist(), strict=True))

    def state(self) -> dict[str, Tensor]:
        """Tensors `values` and `counts`."""
        return {"values": self.values, "counts": self.counts}

    @classmethod
    def restore(cls, state: dict[str, Tensor]) -> Self:
        """The inverse of `state`."""
        new = cls()
        new.values, new.counts = state["values"].clone().cpu(), state["counts"].clone().cpu()
        return new
