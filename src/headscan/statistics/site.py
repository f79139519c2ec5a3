"""All that a scan keeps of one site of a model: sums over all tokens and over first positions, by blocks of windows."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

from headscan.statistics.accumulator import Accumulator, prefixed, unprefixed
from headscan.statistics.blocks import Blocks
from headscan.statistics.sums import Sums

__all__ = ["NonFinite", "SiteStatistics"]

FINE_BLOCKS = 64
COARSE_BLOCKS = 8
# Gram matrices of all blocks of one site may take this much memory; wider sites get one block (no spectral interval).
COARSE_BYTES = 256 * 2**20


class NonFinite(ArithmeticError):
    """A vector was NaN or infinite: `window` and `position` say where it was seen first."""

    def __init__(self, window: int, position: int):
        super().__init__(f"not a finite vector at window {window}, position {position}")
        self.window, self.position = window, position


class SiteStatistics(Accumulator):
    """Sums of a site's vectors in two groups, *all* positions and *first* ones, each by blocks of windows.

    Position 0 of a window often carries a vector unlike all others (an attention sink), so everything is reported with
    and without it: without = all − first, exact because `Sums` is a group.

    There are two resolutions. *Fine* blocks (up to 64) hold vectors only and serve the intervals of measures that need
    no second moment; *coarse* blocks (up to 8) hold Gram matrices, which take 5·width² bytes each. Wider sites than
    about 2,500 get one coarse block: exact values, no interval for spectral measures.

    >>> s = SiteStatistics(width=3)
    >>> s.update(torch.randn(2, 5, 3), windows=[0, 1])     # two windows of five tokens
    >>> s.all.count, s.first.count, s.without_first.count
    (10, 2, 8)
    """

    def __init__(self, width: int, *, skip_first: int = 0, device: torch.device | str = "cpu"):
        self.width, self.skip_first, self.device = width, skip_first, torch.device(device)
        coarse = COARSE_BLOCKS if 2 * COARSE_BLOCKS * 5 * width**2 <= COARSE_BYTES else 1
        self.fine = {group: Blocks(FINE_BLOCKS, self._zero_vectors) for group in ("all", "first")}
        self.coarse = {group: Blocks(coarse, self._zero_matrix) for group in ("all", "first")}

    def _zero_vectors(self) -> Sums:
        return Sums(self.width, gram=False, device=self.device)

    def _zero_matrix(self) -> Sums:
        return Sums(self.width, gram=True, device=self.device)

    def update(self, states: Tensor, windows: list[int]) -> None:
        """Add the states [B, T, width] of the windows with the given global numbers (B of them).

        Raises `NonFinite` before anything is added, so a bad batch leaves the statistics as they were.
        Cost: 1.25·B·T·width² multiply-adds for the Gram matrices, and three passes over the batch.
        """
        rows = states.detach()[:, self.skip_first :].to(device=self.device, dtype=torch.float64)
        norms = torch.linalg.vector_norm(rows, dim=-1)  # [B, T]
        finite = torch.isfinite(norms)
        if not bool(finite.all()):
            window, position = (~finite).nonzero()[0].tolist()
            raise NonFinite(windows[window], position + self.skip_first)
        weights = torch.stack([torch.where(norms > 0, 1 / norms, 0.0), torch.ones_like(norms)], dim=1)  # [B, 2, T]
        directed = torch.bmm(weights, rows)  # [B, 2, width]: Σ x/‖x‖ and Σ x of each window, in one reading of the rows
        scalars = torch.stack([torch.ones_like(norms), (norms == 0).double(), norms, norms.square()], dim=-1)
        self._add("all", windows, rows, directed, scalars.sum(1))
        if self.skip_first == 0:
            lead = rows[:, :1]
            self._add("first", windows, lead, weights[:, :, :1] * lead, scalars[:, 0])

    def _add(self, group: str, windows: list[int], rows: Tensor, directed: Tensor, scalars: Tensor) -> None:
        for blocks in (self.fine[group], self.coarse[group]):
            # The deepest window first: coarsening then happens once, before any block of this batch is chosen.
            blocks.index(max(windows))
            runs: dict[int, list[int]] = {}
            for row, window in enumerate(windows):
                runs.setdefault(blocks.index(window), []).append(row)
            for members in runs.values():
                part = blocks[windows[members[0]]]
                chosen = slice(members[0], members[-1] + 1) if members[-1] - members[0] + 1 == len(members) else members
                part.unit += directed[chosen, 0].sum(0)
                part.total += directed[chosen, 1].sum(0)
                part.scalars += scalars[chosen].sum(0)
                if part.gram is not None:
                    part.gram.add(rows[chosen].reshape(-1, self.width))

    @property
    def all(self) -> Sums:
        """The sums of every position counted."""
        return self.coarse["all"].total()

    @property
    def first(self) -> Sums:
        """The sums of position 0 of every window (empty where positions are skipped)."""
        return self.coarse["first"].total()

    @property
    def without_first(self) -> Sums:
        """The sums of every position but the first of each window."""
        return self.all.without(self.first)

    def merge(self, other: SiteStatistics) -> None:
        """Add the statistics of other windows of the same stream."""
        for group in ("all", "first"):
            self.fine[group].merge(other.fine[group])
            self.coarse[group].merge(other.coarse[group])

    def state(self) -> dict[str, Tensor]:
        """Shape and blocks, as tensors."""
        state = {"shape": torch.tensor([self.width, self.skip_first])}
        for group in ("all", "first"):
            state |= prefixed(f"fine.{group}", self.fine[group].state())
            state |= prefixed(f"coarse.{group}", self.coarse[group].state())
        return state

    @classmethod
    def restore(cls, state: dict[str, Tensor]) -> Self:
        """The inverse of `state`."""
        width, skip_first = state["shape"].tolist()
        new = cls(width, skip_first=skip_first, device=state["shape"].device)
        for group in ("all", "first"):
            new.fine[group] = Blocks.restore(unprefixed(f"fine.{group}", state), new._zero_vectors)
            new.coarse[group] = Blocks.restore(unprefixed(f"coarse.{group}", state), new._zero_matrix)
        return new
