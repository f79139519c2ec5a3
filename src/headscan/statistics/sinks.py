"""Sink tokens: a few tokens whose vectors are many times longer than all others.

Attention that is not needed anywhere goes to them; in large models they carry nearly all of a
block's energy (massive activations, Sun et al. 2024, arXiv:2402.17762). So every statistic is kept
separately for them and for the other tokens.
"""

from typing import Self

import torch
from torch import Tensor

from headscan.statistics.accumulator import Accumulator

FACTOR = 3.0
"""A token is a sink when its vector is longer than this many times the median of its window.

Measured: in Qwen2.5-Coder-1.5B the first token has 3.2 to 270 medians at blocks 1 to 27, all other
tokens at most 1.9; in models without sinks (all-mpnet-base-v2, the embedded ones) no token has more
than 2.2.
"""

CELLS = ("ordinary", "first", "sink", "first_sink")
"""The disjoint sets of tokens that have sums of their own: `first` is position 0 of a window."""

GROUPS = {"all": (0, 1, 2, 3), "without_first": (0, 2), "without_sinks": (0, 1)}
"""The sets that measures are taken of, as unions of cells: nothing is subtracted from a sum."""


def lengths(states: Tensor) -> Tensor:
    """Return the lengths [B, T] of states [B, T, d]; in float32 at least, in float64 on a device.

    A device sends its lengths to the CPU, which then needs no other copy of them.
    """
    on_cpu = states.device.type == "cpu"
    dtype = torch.promote_types(states.dtype, torch.float32) if on_cpu else torch.float64
    norms: Tensor = torch.linalg.vector_norm(states, dim=-1, dtype=dtype)
    return norms


def sinks(states: Tensor, norms: Tensor | None = None) -> Tensor:
    """Return which tokens are sinks, bool [B, T], among the states [B, T, d] of whole windows.

    `norms` are the `lengths` of the states, if known. The median of an even number of tokens is the
    lower one.

    >>> states = torch.tensor([[9.0, 1.0, 1.0, -7.0, 2.0], [1.0, 1.0, 1.0, 1.0, 1.0]])[..., None]
    >>> sinks(states)[0].tolist()
    [True, False, False, True, False]
    """
    if norms is None:
        norms = lengths(states)
    median = norms.median(dim=1, keepdim=True).values
    return (norms > FACTOR * median) & (median > 0)


class Occurrences(Accumulator):
    """The number of occurrences of each number; memory grows with the different numbers."""

    def __init__(self) -> None:
        self.values = torch.zeros(0, dtype=torch.int64)
        self.counts = torch.zeros(0, dtype=torch.int64)

    def update(self, values: Tensor) -> None:
        """Add numbers, int64 [n]."""
        if len(values):
            self._add(values.cpu(), torch.ones(len(values), dtype=torch.int64))

    def merge(self, other: "Occurrences") -> None:
        self._add(other.values, other.counts)

    def _add(self, values: Tensor, counts: Tensor) -> None:
        all_values = torch.cat([self.values, values])
        all_counts = torch.cat([self.counts, counts])
        self.values, index = all_values.unique(return_inverse=True)
        self.counts = torch.zeros_like(self.values).index_add_(0, index, all_counts)

    def most(self, limit: int = 10) -> list[tuple[int, int]]:
        """Return the most frequent numbers with their counts; of equal counts the smaller number
        first.
        """
        order = torch.argsort(self.counts, descending=True, stable=True)[:limit]
        return list(zip(self.values[order].tolist(), self.counts[order].tolist(), strict=True))

    def state(self) -> dict[str, Tensor]:
        return {"values": self.values, "counts": self.counts}

    @classmethod
    def restore(cls, state: dict[str, Tensor]) -> Self:
        occurrences = cls()
        occurrences.values = state["values"].clone()
        occurrences.counts = state["counts"].clone()
        return occurrences
