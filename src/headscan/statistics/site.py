"""All that a scan keeps of one site of a model: sums over all tokens and over first positions, and what intervals need."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

from headscan.statistics.accumulator import Accumulator, prefixed, unprefixed
from headscan.statistics.blocks import Blocks
from headscan.statistics.derivative import Cut, token_sums
from headscan.statistics.gram import Gram
from headscan.statistics.influence import Derive, Influence
from headscan.statistics.sums import Sums

__all__ = ["NonFinite", "SiteStatistics"]

FINE_BLOCKS = 64
COARSE_BLOCKS = 8


class NonFinite(ArithmeticError):
    """A vector was NaN or infinite: `window` and `position` say where it was seen first."""

    def __init__(self, window: int, position: int):
        super().__init__(f"not a finite vector at window {window}, position {position}")
        self.window, self.position = window, position


class SiteStatistics(Accumulator):
    """Sums of a site's vectors in two groups, *all* positions and *first* ones, and the windows' influences.

    Position 0 of a window often carries a vector unlike all others (an attention sink), so everything is reported with
    and without it: without = all − first, exact because `Sums` is a group.

    There is one Gram matrix a group. Sums of vectors are kept in 8 blocks (`coarse`: what `all` adds up) and in 64 (`fine`:
    for probes that look at pieces of the text). With `derive` every window's and document's influence on the measures is
    kept too (`influence`), from which intervals are made.

    >>> s = SiteStatistics(width=3)
    >>> s.update(torch.randn(2, 5, 3), windows=[0, 1])     # two windows of five tokens
    >>> s.all.count, s.first.count, s.without_first.count
    (10, 2, 8)
    """

    def __init__(
        self, width: int, *, skip_first: int = 0, device: torch.device | str = "cpu", derive: Derive | None = None
    ):
        self.width, self.skip_first, self.device = width, skip_first, torch.device(device)
        self.fine = {group: Blocks(FINE_BLOCKS, self._zero) for group in ("all", "first")}
        self.coarse = {group: Blocks(COARSE_BLOCKS, self._zero) for group in ("all", "first")}
        self.gram = {group: Gram(width, self.device) for group in ("all", "first")}
        self.influence = Influence(width, self._aside, derive=derive, device=device) if derive else None

    @property
    def _lead(self) -> int:
        return 1 if self.skip_first == 0 else 0

    def _zero(self) -> Sums:
        return Sums(self.width, gram=False, device=self.device)

    def _aside(self, states: Tensor) -> Tensor:
        """Masks [1, B, T] of the tokens that a further treatment leaves out: position 0."""
        masks = torch.zeros(1, *states.shape[:2], dtype=torch.bool, device=states.device)
        masks[0, :, : self._lead] = True
        return masks

    def _counted(self, states: Tensor) -> Tensor:
        return states.detach()[:, self.skip_first :].to(self.device)

    def update(self, states: Tensor, windows: list[int], documents: Tensor | None = None) -> None:
        """Add the states [B, T, width] of the windows with the given global numbers (B of them).

        `documents` [B, T] are the numbers of the documents that the tokens are of; without, all are of one.

        Raises `NonFinite` before anything is added, so a bad batch leaves the statistics as they were.
        Cost: .625·B·T·width² multiply-adds in float64 for the Gram matrix, three passes over the batch, and what
        `Derivative.of` says.
        """
        if documents is None:
            documents = torch.zeros(states.shape[:2], dtype=torch.int64)
        states = self._counted(states)
        cut = Cut.of(states, documents[:, self.skip_first :], self._aside(states))
        finite = torch.isfinite(cut.norms)
        if not bool(finite.all()):
            window, position = (~finite).nonzero()[0].tolist()
            raise NonFinite(windows[window], position + self.skip_first)
        self._add("all", windows, cut.sums)
        self.gram["all"].add(cut.rows.reshape(-1, self.width), cut.sums[:, self.width : -4].sum(0))
        if self._lead:
            self._add("first", windows, token_sums(cut.rows[:, 0], cut.norms[:, 0]))
            self.gram["first"].add(cut.rows[:, 0])
        if self.influence is not None:
            self.influence.update(cut, windows)

    def learn(self, states: Tensor, windows: list[int]) -> None:
        """Take the intervals' derivative from the text's first windows without counting them; see `Influence`."""
        if self.influence is not None:
            self.influence.learn(self._counted(states), windows)

    def _add(self, group: str, windows: list[int], sums: Tensor) -> None:
        for blocks in (self.fine[group], self.coarse[group]):
            # The deepest window first: coarsening then happens once, before any block of this batch is chosen.
            blocks.index(max(windows))
            runs: dict[int, list[int]] = {}
            for row, window in enumerate(windows):
                runs.setdefault(blocks.index(window), []).append(row)
            for members in runs.values():
                part = blocks[windows[members[0]]]
                chosen = slice(members[0], members[-1] + 1) if members[-1] - members[0] + 1 == len(members) else members
                part.unit += sums[chosen, : self.width].sum(0)
                part.total += sums[chosen, self.width : -4].sum(0)
                part.scalars += sums[chosen, -4:].sum(0)

    def _whole(self, group: str) -> Sums:
        sums = self.coarse[group].total()
        sums.gram = self.gram[group].copy()
        return sums

    @property
    def all(self) -> Sums:
        """The sums of every position counted."""
        return self._whole("all")

    @property
    def first(self) -> Sums:
        """The sums of position 0 of every window (empty where positions are skipped)."""
        return self._whole("first")

    @property
    def without_first(self) -> Sums:
        """The sums of every position but the first of each window."""
        return self.all.without(self.first)

    def merge(self, other: SiteStatistics) -> None:
        """Add the statistics of other windows of the same stream."""
        for group in ("all", "first"):
            self.fine[group].merge(other.fine[group])
            self.coarse[group].merge(other.coarse[group])
            self.gram[group].combine(other.gram[group])
        if self.influence is not None and other.influence is not None:
            self.influence.merge(other.influence)

    def state(self) -> dict[str, Tensor]:
        """Shape, blocks, Gram matrices and influences, as tensors."""
        state = {"shape": torch.tensor([self.width, self.skip_first])}
        for group in ("all", "first"):
            state |= prefixed(f"fine.{group}", self.fine[group].state())
            state |= prefixed(f"coarse.{group}", self.coarse[group].state())
            state |= prefixed(f"gram.{group}", self.gram[group].state())
        if self.influence is not None:
            state |= prefixed("influence", self.influence.state())
        return state

    @classmethod
    def restore(cls, state: dict[str, Tensor]) -> Self:
        """The inverse of `state`; for `influence` see `Influence.restore`."""
        width, skip_first = state["shape"].tolist()
        new = cls(width, skip_first=skip_first, device=state["shape"].device)
        for group in ("all", "first"):
            new.fine[group] = Blocks.restore(unprefixed(f"fine.{group}", state), new._zero)
            new.coarse[group] = Blocks.restore(unprefixed(f"coarse.{group}", state), new._zero)
            new.gram[group] = Gram.restore(unprefixed(f"gram.{group}", state))
        influence = unprefixed("influence", state)
        new.influence = Influence.restore(influence, new._aside) if influence else None
        return new
