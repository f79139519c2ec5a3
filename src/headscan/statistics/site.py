"""All that a scan keeps of one site of a model: sums over sets of tokens, and what intervals need."""

from collections.abc import Iterator, Sequence
from copy import copy
from functools import partial
from typing import Self

import torch
from torch import Tensor

from headscan.statistics.accumulator import (
    Accumulator,
    Octaves,
    fetched,
    prefixed,
    sent,
    unprefixed,
)
from headscan.statistics.clusters import Clusters, Pieces, Series, token_sums
from headscan.statistics.gram import Gram
from headscan.statistics.reservoir import CELLS, GROUPS, Occurrences, lengths, sinks
from headscan.statistics.tiles import TILE, WIDE, Tiles


class Sums(Accumulator):
    """Count, Σx, Σx/‖x‖, Σ‖x‖, Σ‖x‖² and, where asked, Σxxᵀ of a set of vectors of one width; all
    in float64.

    Rows of norm zero have no direction: they are counted in `zeros` and left out of Σx/‖x‖.

    >>> s = Sums.of_rows(torch.tensor([[0.0, 4.0], [0.0, 0.0]]))
    >>> s.count, s.zeros, s.norm, s.unit.tolist()
    (2, 1, 4.0, [0.0, 1.0])
    """

    fields = ("sums",)

    def __init__(
        self, width: int, *, gram: bool = True, few: int = 0, device: torch.device | str = "cpu"
    ):
        self.width = width
        # as `token_sums`
        self.sums = torch.zeros(2 * width + 4, dtype=torch.float64, device=device)
        self.gram = Gram(width, device, few=few) if gram else None

    @property
    def unit(self) -> Tensor:
        return self.sums[: self.width]

    @property
    def total(self) -> Tensor:
        return self.sums[self.width : -4]

    @property
    def scalars(self) -> Tensor:
        """Count, zeros, Σ‖x‖, Σ‖x‖²."""
        return self.sums[-4:]

    @property
    def count(self) -> int:
        return int(self.scalars[0])

    @property
    def zeros(self) -> int:
        return int(self.scalars[1])

    @property
    def norm(self) -> float:
        return float(self.scalars[2])

    @property
    def square(self) -> float:
        return float(self.scalars[3])

    @classmethod
    def of_rows(cls, rows: Tensor, *, gram: bool = True) -> Self:
        """The sums of the rows of a matrix [n, width]."""
        rows = rows.double()
        new = cls(rows.shape[1], gram=gram, device=rows.device)
        new.sums += token_sums(rows, torch.linalg.vector_norm(rows, dim=-1)).sum(0)
        if new.gram is not None:
            new.gram.add(rows, new.total)
        return new

    def merge(self, other: "Sums") -> None:
        self._combine(other, 1.0)

    def weighed(self, other: "Sums", weight: float) -> Self:
        """The sums of this set with another one added `weight` times; the counts need be no whole
        numbers then.
        """
        new = self.copy()
        new._combine(other, weight)
        return new

    def without(self, other: "Sums") -> Self:
        """The sums of this set less a part of it."""
        return self.weighed(other, -1.0)

    def copy(self) -> Self:
        new = type(self)(self.width, gram=self.gram is not None, device=self.sums.device)
        new._combine(self, 1.0)
        return new

    def _combine(self, other: "Sums", sign: float) -> None:
        if self.width != other.width:
            raise ValueError(f"sums of width {self.width} and {other.width} do not add")
        self.sums.add_(other.sums.to(self.sums.device), alpha=sign)
        if self.gram is not None:
            if other.gram is None:
                raise ValueError("sums without a Gram matrix cannot be added to sums with one")
            self.gram.combine(other.gram, sign)

    def state(self) -> dict[str, Tensor]:
        return super().state() | ({} if self.gram is None else prefixed("gram", self.gram.state()))

    @classmethod
    def restore(cls, state: dict[str, Tensor]) -> Self:
        new = cls(len(state["sums"]) // 2 - 2, gram=False, device=state["sums"].device).filled(
            state
        )
        gram = unprefixed("gram", state)
        new.gram = Gram.restore(gram) if gram else None
        return new


FINE_BLOCKS = 64
AT_ONCE = 2**20  # numbers, 8 MiB in float64, that are added at a time: more leave the cache


class CellSums(Accumulator):
    """`Sums` of disjoint sets of tokens, some of `CELLS`; few are kept as they are."""

    fields = ("cells",)

    def __init__(self, width: int, cells: Sequence[str], *, device: torch.device | str = "cpu"):
        self.cells = {cell: Sums(width, few=5 * width // 8, device=device) for cell in cells}

    def restored(self, state: dict[str, Tensor]) -> Self:
        return copy(self).filled(state)


class NonFinite(ArithmeticError):
    """A vector was NaN or infinite: `window` and `position` say where it was seen first, `site` at
    which site, if known.
    """

    def __init__(self, window: int, position: int, site: str | None = None):
        super().__init__(f"not a finite vector at window {window}, position {position}")
        self.window = window
        self.position = position
        self.site = site


class SiteStatistics(Accumulator):
    """Sums of a site's vectors over disjoint sets of tokens (`CELLS`), and what intervals need.

    Position 0 of a window and sinks (tokens whose vectors are far longer than the others') are kept
    apart, because everything is reported of all tokens, without the first and without sinks
    (`GROUPS`). Each of these is a sum of sets; nothing is taken away, so large vectors leave no
    rounding behind.

    Ordinary tokens have a Gram matrix; the few others are kept as they are. `fine`: sums in 64
    blocks of first positions and of all others. `squared_unit`: Σx²/‖x‖² of what is no sink.
    `sink_positions`, `sink_tokens`: where sinks stand and which ids they are. With `intervals`,
    what each document and stretch of windows adds is kept (`clusters`), too.

    `lead`: how many first positions are kept apart, 1 or, where a window is one vector, 0.

    With `lengths` of 2 to 4 the sums of windows up to 2, 4, 8, ... are kept apart, as many of the
    last as that says, of the tokens that are no sinks: what the text had been had it ended there
    (`prefixes`). Each takes as much memory as the whole. `bounded`: sites of 256 dimensions and
    more, whose states are not in float64, are summed by float32 products of `tiles` once as many
    tokens were read as they have dimensions.
    """

    arguments = ("width", "skip_first", "lead", "bounded")
    fields = ("fine", "octaves", "sinks", "squared_unit", "sink_positions", "sink_tokens")

    def __init__(
        self,
        width: int,
        *,
        skip_first: int = 0,
        lead: int = 1,
        device: torch.device | str = "cpu",
        intervals: bool = False,
        lengths: int = 1,
        bounded: bool = False,
    ):
        self.bounded = bool(bounded)
        self.tiles = Tiles(width, device) if bounded and width >= WIDE else None
        self.width = width
        self.skip_first = skip_first
        self.device = torch.device(device)
        self.lead = lead
        self.fine = Series(2 * width + 4, FINE_BLOCKS, 2, self.device)
        self.octaves = Octaves(lengths, partial(CellSums, width, CELLS[:2], device=self.device))
        self.sinks = CellSums(width, CELLS[2:], device=self.device)
        self.squared_unit = torch.zeros(width, dtype=torch.float64, device=device)
        self.sink_positions = Occurrences()
        self.sink_tokens = Occurrences()
        self.clusters = Clusters(width, self.device) if intervals else None

    def _codes(self, norms: Tensor) -> Tensor:
        """The place in `CELLS` of each token [B, T], known to the processor; 4 more where its norm
        is not finite.
        """
        codes = 2 * sinks(norms[..., None], norms).to(torch.int64) + 4 * (
            ~torch.isfinite(norms)
        ).to(torch.int64)
        codes[:, : 0 if self.skip_first else self.lead] += 1
        return codes

    def update(
        self,
        states: Tensor,
        windows: list[int],
        documents: Tensor | None = None,
        ids: Tensor | None = None,
        *,
        rest: bool = False,
        norms: Tensor | None = None,
    ) -> None:
        """Add the states [B, T, width] of the windows with the given global numbers (B of them).

        `documents` [B, T]: the numbers of the tokens' documents; without, all are of one. `ids` [B,
        T]: the tokens' own, remembered for sinks. The `rest` of a stream, a shorter window at its
        end, is in the sums and has no influence. `norms`: the states' `lengths`, where the
        processor has them; without, a card makes it wait.

        Raises `NonFinite` before anything is added. Cost: .625·B·T·width² multiply-adds in float64
        for the Gram matrix.
        """
        documents = (
            torch.zeros(states.shape[:2], dtype=torch.int64) if documents is None else documents
        )
        states = states.detach().to(self.device)
        norms = (fetched(lengths(states))() if norms is None else norms)[:, self.skip_first :]
        states = states[:, self.skip_first :]
        documents = documents[:, self.skip_first :]
        cells = self._codes(norms)
        if overflown := bool((cells >= 4).any()):  # in float32 they may overflow
            finite = torch.isfinite(torch.linalg.vector_norm(states.double(), dim=-1)).cpu()
            if not bool(finite.all()):
                window, position = (~finite).nonzero()[0].tolist()
                raise NonFinite(windows[window], position + self.skip_first)
            cells %= 4
        if ids is not None:
            self.sink_tokens.update(ids[:, self.skip_first :].cpu()[cells >= 2])
        tile = max(1, TILE // cells.shape[1]) if states.device.type == "cpu" else len(states)
        step = max(1, -(-len(states) // max(1, -(-states.numel() // AT_ONCE))))
        for octave, members in self.octaves.runs(windows):
            while members:
                centre = (
                    None
                    if overflown or states.dtype == torch.float64
                    else self._centre(states.dtype)
                )
                rows, members = (
                    (members[:step], members[step:])
                    if centre is None
                    else (members[:tile], members[tile:])
                )
                part = slice(rows[0], rows[-1] + 1) if rows[-1] - rows[0] + 1 == len(rows) else rows
                cut = Pieces.of(states[part], documents[part], cells[part], norms[part], centre)
                self._add(cut, octave, [windows[row] for row in rows], rest=rest)

    def _centre(self, dtype: torch.dtype) -> Tensor | None:
        """The point about which tiles of the next tokens are multiplied; None while they are summed
        in float64.
        """
        if self.tiles is not None and self.tiles.centre is None and self.tiles.tokens >= self.width:
            every = torch.stack([part.cells["ordinary"].sums for part in self.octaves.parts()]).sum(
                0
            )
            self.tiles = (
                self.tiles if self.tiles.begin(every[self.width : -4], every[-4:], dtype) else None
            )
        return None if self.tiles is None else self.tiles.centre

    def _add(self, cut: Pieces, octave: CellSums, windows: list[int], *, rest: bool) -> None:
        adding = [(self.fine, torch.tensor(windows)[cut.first // cut.cells.shape[1]], cut.cell % 2)]
        Series.add(
            cut.values,
            adding + ([] if self.clusters is None or rest else self.clusters.update(cut, windows)),
        )
        self._cells(cut, octave.cells | self.sinks.cells)

    def _cells(self, cut: Pieces, kept: dict[str, Sums]) -> None:
        if self.tiles is not None:
            self.tiles.tokens += cut.cells.numel()
        sums = cut.ordinary.sum(0)
        gram = _gram(kept["ordinary"])
        count = cut.cells.numel() - len(cut.apart)
        kept["ordinary"].sums += sums
        self.squared_unit += cut.squared_unit
        if self.tiles is not None and cut.centre is not None and gram.panels:
            self.tiles.add(gram, cut)
            gram.sum.add_(sums[self.width : -4]).sub_(cut.centre, alpha=count)
            gram.count += count
        elif gram.panels and gram.count and gram.pilot is None:  # zero rows add nothing
            gram.add(cut.rows.flatten(0, 1), sums[self.width : -4], count=float(count))
        else:
            place = (cut.cells.flatten() == 0).nonzero().flatten()
            gram.add(cut.states.flatten(0, 1)[sent(place, self.device)].double())
        for cell, alone in zip(CELLS[1:], cut.by_cell[1:], strict=True):
            if len(alone):
                total = alone.sum(0)
                kept[cell].sums += total
                _gram(kept[cell]).add(alone[:, self.width : -4], total[self.width : -4])
        self.sink_positions.update((cut.cells >= 2).nonzero()[:, 1] + self.skip_first)

    def cell(self, name: str) -> Sums:
        """The sums of one of `CELLS`."""
        return self._sums([name], gram=True)

    def sums(self, group: str, *, gram: bool = True) -> Sums:
        """The sums of a group of tokens, one of `sinks.GROUPS`: `all`, `without_first`,
        `without_sinks`.
        """
        return self._sums([CELLS[number] for number in GROUPS[group]], gram=gram)

    def prefixes(self) -> Iterator[Sums]:
        """The sums of tokens that are no sinks in the first 2, 4, 8, ... windows, as far as they
        are kept, least first.
        """
        parts = self.octaves.parts()
        return (self._sums(CELLS[:2], gram=True, parts=parts[:end]) for end in range(1, len(parts)))

    def _sums(
        self, cells: Sequence[str], *, gram: bool, parts: Sequence[CellSums] | None = None
    ) -> Sums:
        whole = Sums(self.width, gram=gram, few=self.width, device=self.device)
        for part in [*self.octaves.parts(), self.sinks] if parts is None else parts:
            for cell in (name for name in cells if name in part.cells):
                whole.merge(part.cells[cell])
        return whole

    def occupied(self, group: str) -> tuple[str, ...]:
        """The sets of a group that hold any token: groups with the same sets have the same sums."""
        parts = [*self.octaves.parts(), self.sinks]
        names = [CELLS[number] for number in GROUPS[group]]
        return tuple(
            name
            for name in names
            if any(name in part.cells and part.cells[name].count for part in parts)
        )

    @property
    def all(self) -> Sums:
        return self.sums("all")

    def merge(self, other: "SiteStatistics") -> None:
        super().merge(other)
        if self.clusters is not None and other.clusters is not None:
            self.clusters.merge(other.clusters)
        if other.tiles is not None:
            mine = self.tiles
            self.tiles = Tiles.restore(other.tiles.state())
            self.tiles.merge(mine or Tiles(self.width, self.device))

    def state(self) -> dict[str, Tensor]:
        state = super().state() | (
            {} if self.clusters is None else prefixed("clusters", self.clusters.state())
        )
        return state | ({} if self.tiles is None else prefixed("tiles", self.tiles.state()))

    @classmethod
    def restore(cls, state: dict[str, Tensor]) -> Self:
        new = super().restore(state)
        clusters = unprefixed("clusters", state)
        new.clusters = Clusters.restore(clusters) if clusters else None
        tiles = unprefixed("tiles", state)
        new.tiles = Tiles.restore(tiles) if tiles else None
        return new


def _gram(sums: Sums) -> Gram:
    assert sums.gram is not None
    return sums.gram
