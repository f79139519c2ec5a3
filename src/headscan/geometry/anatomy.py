"""The anatomy of a cone: how much of the squared length of the mean unit state comes from which part.

The average cosine of n states is, up to the diagonal, |m|² with m the mean of x/‖x‖. Let m be a sum of parts aᵢ: then
|m|² = Σ aᵢ·m, exactly, and aᵢ·m/|m|² is the share of part i. A share may be negative: that part takes away from the cone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headscan.geometry.deviation import Deviation
from headscan.geometry.explained import Cells

__all__ = ["Shares", "SiteParts", "band_names", "position_bands", "rank_bands"]

Floats = npt.NDArray[np.float64]

RANKS = (10, 50, 200, 1000)
"""Where bands of token frequency end, by the rank of a token in the text."""

COORDINATES = 8
"""How many coordinates have a share of their own; the rest is one part."""


def rank_bands(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The band of each token id [V] by its rank in the text: 0 for ranks 1 to 10, ..., 4 beyond 1,000.

    >>> rank_bands(np.array([3, 9, 0]))[[1, 0]].tolist()
    [0, 0]
    """
    ranks = np.empty(len(counts), dtype=np.int64)
    ranks[np.argsort(-counts, kind="stable")] = np.arange(len(counts))
    return np.searchsorted(np.array(RANKS), ranks, side="right")


def band_names() -> list[str]:
    """What the bands are called."""
    starts = [1, *(rank + 1 for rank in RANKS)]
    return [f"rank {low}-{high}" for low, high in zip(starts, RANKS, strict=False)] + [f"rank {starts[-1]}-"]


def position_bands(positions: int, skip_first: int = 0) -> tuple[npt.NDArray[np.int64], list[str]]:
    """The band of each position from `skip_first` on, and the bands' names: 0, 1, 2-3, 4-7, ...

    >>> position_bands(6)[0].tolist(), position_bands(6)[1]
    ([0, 1, 2, 2, 3, 3], ['position 0', 'position 1', 'position 2-3', 'position 4-5'])
    """
    places = np.arange(skip_first, positions)
    bands = np.array([int(place).bit_length() for place in places], dtype=np.int64)
    bands = bands - bands[0]
    names = []
    for band in range(bands[-1] + 1):
        own = places[bands == band]
        names.append(f"position {own[0]}" if len(own) == 1 else f"position {own[0]}-{own[-1]}")
    return bands, names


@dataclass(frozen=True)
class Shares:
    """The sums of a site by blocks of the text: of all unit states [C, d], and how many tokens they are of [C]."""

    units: Floats
    tokens: Floats

    @property
    def total(self) -> Floats:
        """Σx/‖x‖ [d]."""
        found: Floats = self.units.sum(0)
        return found

    @property
    def square(self) -> float:
        """‖Σx/‖x‖‖²."""
        return float(self.total @ self.total)

    def of(self, kind: str, names: Sequence[str], sums: Floats, tokens: Floats | None = None) -> Iterator[Cells]:
        """The rows of parts whose sums by blocks are [C, K, d]; `tokens` [K] are the parts' own, where they are of tokens."""
        total = self.total
        each, whole = sums @ total, sums.sum(0)
        yield from self._rows(kind, names, each, self.units @ whole.T, tokens)

    def of_coordinates(self, kind: str, names: Sequence[str], sums: Floats, chosen: Sequence[int]) -> Iterator[Cells]:
        """The same parts [C, K, d], each cut by the coordinates `chosen`, and all others together."""
        total = self.total
        for k, name in enumerate(names):
            own, whole = sums[:, k], sums[:, k].sum(0)
            each = [*(own[:, i] * total[i] for i in chosen), own @ total - own[:, chosen] @ total[chosen]]
            beside = [
                *(self.units[:, i] * whole[i] for i in chosen),
                self.units @ whole - self.units[:, chosen] @ whole[chosen],
            ]
            parts = [*(f"coordinate {i}" for i in chosen), "other coordinates"]
            labels = [f"{name}, {part}" if name else part for part in parts]
            yield from self._rows(kind, labels, np.stack(each, 1), np.stack(beside, 1), None)

    def _rows(
        self, kind: str, names: Sequence[str], each: Floats, beside: Floats, tokens: Floats | None
    ) -> Iterator[Cells]:
        """From Σ_c a·m and Σ u·a of each block [C, K]: the share, and by its derivative what each block adds to its error."""
        square, n = self.square, float(self.tokens.sum())
        shares = each.sum(0) / square
        slope = (each + beside - 2 * shares * (self.units @ self.total)[:, None]) / square
        for k, name in enumerate(names):
            deviation = Deviation.of_text(n * slope[:, k], self.tokens)
            share = float(shares[k])
            interval = None if deviation is None else list(deviation.interval(share, bounds=(None, None)))
            row: Cells = {"kind": kind, "part": name, "share": share, "share_interval": interval, "interval": interval}
            yield row if tokens is None else row | {"tokens": float(tokens[k] / n)}

    def of_documents(self, names: Sequence[str], units: Floats, tokens: Floats) -> Iterator[Cells]:
        """The rows of groups of documents, units [G, d]; the interval is over what the other documents might have been."""
        total, square, n = units.sum(0), float(units.sum(0) @ units.sum(0)), float(tokens.sum())
        for g, name in enumerate(names):
            share = float(units[g] @ total) / square
            slope = (units @ units[g] - 2 * share * (units @ total)) / square
            others = np.arange(len(units)) != g
            deviation = Deviation.of_documents(n * slope[others], tokens[others])
            interval = None if deviation is None else list(deviation.interval(share, bounds=(None, None)))
            yield {
                "kind": "document", "part": name, "share": share, "share_interval": interval, "interval": interval,
                "tokens": float(tokens[g] / n),
            }  # fmt: skip


@dataclass(frozen=True)
class SiteParts:
    """One site's sums by blocks, float64: `cells` [C, bands·positions, d] with their `tokens`, and `branches` [C, K, d] by
    name, or none; the names of bands and positions."""

    cells: Floats
    tokens: Floats
    bands: Sequence[str]
    positions: Sequence[str]
    branches: Floats
    names: Sequence[str]

    def rows(self, *, pairs: bool) -> Iterator[Cells]:
        """All shares; those of a kind add up to 1. `pairs`: of band with position and branch with coordinate, too."""
        shares = Shares(self.cells.sum(1), self.tokens.sum(1))
        blocks, width = shares.units.shape
        if not shares.square > 0:
            return
        grid = (blocks, len(self.bands), len(self.positions))
        cells, tokens = self.cells.reshape(*grid, width), self.tokens.sum(0).reshape(grid[1:])
        strongest = np.argsort(-(shares.total**2), kind="stable")
        chosen = strongest[: min(COORDINATES, width)].tolist()
        if self.names:
            branches = self.branches
            rest = shares.units - branches.sum(1)
            every, names = np.concatenate([branches, rest[:, None]], 1), [*self.names, "rounding"]
            yield from shares.of("branch", names, every)
            if pairs:
                yield from shares.of_coordinates("branch and coordinate", names, every, chosen[:2])
        if len(self.bands) > 1:
            yield from shares.of("band", self.bands, cells.sum(2), tokens.sum(1))
        yield from shares.of("position", self.positions, cells.sum(1), tokens.sum(0))
        yield from shares.of_coordinates("coordinate", [""], shares.units[:, None], chosen)
        if pairs and len(self.bands) > 1:
            names = [f"{band}, {position}" for band in self.bands for position in self.positions]
            yield from shares.of("band and position", names, self.cells, tokens.reshape(-1))
