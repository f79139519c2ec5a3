"""The statistics of one site of a model: sums over sets of tokens, and what intervals need."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Self

import torch
from torch import Tensor

from headscan.statistics.accumulator import Accumulator, device_of, prefixed, unprefixed
from headscan.statistics.blocks import Octaves
from headscan.statistics.clusters import CLUSTERS, Clusters, Series
from headscan.statistics.gram import Gram
from headscan.statistics.pieces import Pieces
from headscan.statistics.sinks import CELLS, GROUPS, Occurrences, lengths, sinks
from headscan.statistics.sums import CellSums, Sums
from headscan.statistics.tiles import TILE, WIDE, Tiles
from headscan.statistics.transfer import fetched, sent

FINE_BLOCKS = CLUSTERS

AT_ONCE = 2**20
"""Numbers, 8 MiB in float64, that are added at a time on a CPU: more would leave the cache."""

AT_ONCE_ON_DEVICES = 2**27
"""Numbers that are added at a time elsewhere, 1 GiB in float64: many small products take longer."""

SAMPLE = "clusters/sample/"
"""The part of a site's state that is on the CPU, whatever device its sums are on."""

ORDINARY_CELLS = CELLS[:2]
SINK_CELLS = CELLS[2:]


class NonFinite(ArithmeticError):
    """A vector was NaN or infinite.

    `window` and `position` say where the first one was, and `site` at which site, if known.
    """

    def __init__(self, window: int, position: int, site: str | None = None):
        super().__init__(f"not a finite vector at window {window}, position {position}")
        self.window = window
        self.position = position
        self.site = site


class SiteStatistics(Accumulator):
    """Sums of a site's vectors over disjoint sets of tokens (`CELLS`), and what intervals need.

    Position 0 of a window and sinks (tokens whose vectors are far longer than the others') have
    sums of their own, because everything is reported for all tokens, without the first and without
    sinks (`GROUPS`). Each of these is a sum of sets; nothing is subtracted, so large vectors leave
    no rounding behind.

    Ordinary tokens have a Gram matrix; the few others are stored as they are. `squared_unit`:
    Σx²/‖x‖² of the tokens that are no sinks. `sink_positions`, `sink_tokens`: the positions and the
    token ids of sinks. With `intervals`, `clusters` has the sums of each document and stretch of
    windows, too; `fine` has those of the windows that are not in `clusters` (`blocks`).

    `lead`: the number of first positions that are a cell of their own, 1 or, where a window is one
    vector, 0.

    With `lengths` of 2 to 4 the sums of the first 2, 4, 8, ... windows are stored separately, for
    that many of the last such lengths, of the tokens that are no sinks: they are the sums of a text
    that had ended there (`prefixes`). Each takes as much memory as the sums of the whole text.

    `bounded`: sites of 256 dimensions and more, whose states are not in float64, are summed by
    float32 products of `tiles` once as many tokens were read as they have dimensions.
    """

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
        self.width = width
        self.skip_first = skip_first
        self.lead = lead
        self.device = torch.device(device)
        self.bounded = bounded
        self.fine = self._no_blocks()
        self.octaves = Octaves(
            lengths, partial(CellSums, width, ORDINARY_CELLS, device=self.device)
        )
        self.sinks = CellSums(width, SINK_CELLS, device=self.device)
        self.squared_unit = torch.zeros(width, dtype=torch.float64, device=device)
        self.sink_positions = Occurrences()
        self.sink_tokens = Occurrences()
        self.clusters = Clusters(width, self.device) if intervals else None
        self.tiles = Tiles(width, device) if bounded and width >= WIDE else None

    def update(
        self,
        states: Tensor,
        windows: list[int],
        documents: Tensor | None = None,
        ids: Tensor | None = None,
        *,
        remainder: bool = False,
        norms: Tensor | None = None,
    ) -> None:
        """Add the states [B, T, width] of the windows with the given global numbers (B of them).

        `documents` [B, T]: the numbers of the tokens' documents; by default all belong to one.
        `ids` [B, T]: the token ids, which are recorded for sinks. `remainder`: the windows are the
        shorter ones at the end of a stream, which are in the sums and have no influence. `norms`:
        the states' `lengths`, where the CPU has them; otherwise a device makes it wait.

        Raises `NonFinite` before anything is added. Cost: 0.625·B·T·width² multiply-adds in float64
        for the Gram matrix.
        """
        if documents is None:
            documents = torch.zeros(states.shape[:2], dtype=torch.int64)
        if norms is None:
            norms = fetched(lengths(states.detach().to(self.device)))()
        states = states.detach().to(self.device)[:, self.skip_first :]
        documents = documents[:, self.skip_first :]
        norms = norms[:, self.skip_first :]

        cells = self._cells_of(norms)
        finite_norms = torch.isfinite(norms.float())
        overflow = not bool(finite_norms.all())
        if overflow:
            self._check_finite(states, windows)
        if ids is not None:
            sink_ids = ids[:, self.skip_first :].cpu()[cells >= 2]
            self.sink_tokens.update(sink_ids)

        length = cells.shape[1]
        on_cpu = states.device.type == "cpu"
        parts = max(1, _ceil_div(states.numel(), AT_ONCE if on_cpu else AT_ONCE_ON_DEVICES))
        rows_in_float64 = max(1, _ceil_div(len(states), parts))
        rows_in_tile = max(1, TILE // length) if on_cpu else rows_in_float64
        for sums, rows in self.octaves.runs(windows):
            while rows:
                centre = None
                if not overflow and states.dtype != torch.float64:
                    centre = self._centre(states[rows[0]])
                step = rows_in_float64 if centre is None else rows_in_tile
                part = rows[:step]
                rows = rows[step:]
                index = _slice_of(part)
                pieces = Pieces.of(
                    states[index], documents[index], cells[index], norms[index], centre
                )
                part_windows = [windows[row] for row in part]
                self._add(pieces, sums, part_windows, remainder=remainder)

    def _cells_of(self, norms: Tensor) -> Tensor:
        """Return the index in `CELLS` of each token [B, T], on the CPU."""
        cells = 2 * sinks(norms[..., None], norms).to(torch.int64)
        first_positions = 0 if self.skip_first else self.lead
        cells[:, :first_positions] += 1
        return cells

    def _check_finite(self, states: Tensor, windows: list[int]) -> None:
        """Raise `NonFinite` for a vector that is not finite; a finite one may overflow float32."""
        finite = torch.isfinite(torch.linalg.vector_norm(states.double(), dim=-1)).cpu()
        if not bool(finite.all()):
            row, position = (~finite).nonzero()[0].tolist()
            raise NonFinite(windows[row], position + self.skip_first)

    def _centre(self, rows: Tensor) -> Tensor | None:
        """Return the point about which tiles of the next tokens, which begin with `rows` [n,
        width], are multiplied; None while they are summed in float64.
        """
        if self.tiles is None:
            return None
        if self.tiles.centre is None and self.tiles.tokens >= self.width:
            parts = self.octaves.parts()
            sums = torch.stack([part.cells["ordinary"].sums for part in parts]).sum(0)
            if not self.tiles.begin(sums[self.width : -4], sums[-4:], rows):
                self.tiles = None
                return None
        return self.tiles.centre

    def _add(self, pieces: Pieces, sums: CellSums, windows: list[int], *, remainder: bool) -> None:
        """Add the pieces of these windows to `sums` and to everything else."""
        if self.clusters is not None and not remainder:
            targets = self.clusters.update(pieces, windows)
        else:
            window_of_value = torch.tensor(windows)[pieces.first // pieces.cells.shape[1]]
            targets = [(self.fine, window_of_value, pieces.cell % 2)]
        Series.add(pieces.values, targets)

        if self.tiles is not None:
            self.tiles.tokens += pieces.cells.numel()
        pieces.add_squared_unit(self.squared_unit)
        self._add_ordinary(pieces, sums.cells["ordinary"].second_moments)
        sums.table += pieces.cell_sums[: len(ORDINARY_CELLS)]
        if bool((pieces.cell >= len(ORDINARY_CELLS)).any()):
            self.sinks.table += pieces.cell_sums[len(ORDINARY_CELLS) :]
        cells = sums.cells | self.sinks.cells
        for cell, vectors in zip(CELLS[1:], pieces.apart_by_cell, strict=True):
            if len(vectors):
                cells[cell].second_moments.add_few(vectors)
        positions = (pieces.cells >= 2).nonzero()[:, 1]
        self.sink_positions.update(positions + self.skip_first)

    def _add_ordinary(self, pieces: Pieces, gram: Gram) -> None:
        """Add the ordinary tokens to their second moments."""
        vector_total = pieces.cell_sums[0, self.width : -4]
        count = pieces.cells.numel() - len(pieces.apart)
        if self.tiles is not None and pieces.centre is not None and gram.panels:
            self.tiles.add(gram, pieces)
            gram.sum.add_(vector_total).sub_(pieces.centre, alpha=count)
            gram.count += count
        elif gram.panels and gram.count and gram.pilot is None:
            # The rows are zero in place of tokens that are not ordinary, and add nothing.
            gram.add(pieces.rows.flatten(0, 1), vector_total, count=float(count))
        else:
            ordinary = (pieces.cells.flatten() == 0).nonzero().flatten()
            vectors = pieces.states.flatten(0, 1)[sent(ordinary, self.device)]
            gram.add(vectors.double())

    def blocks(self) -> Series:
        """Return the sums of at most 64 blocks of text, of all but first positions and of these."""
        blocks = self._no_blocks()
        blocks.merge(self.fine)
        if self.clusters is not None:
            windows = self.clusters.tables["windows"]
            of_windows = self._no_blocks()
            of_windows.size = windows.size
            of_windows.table = windows.table[:2] + windows.table[2:]  # without sinks, and of these
            blocks.merge(of_windows)
        return blocks

    def _no_blocks(self) -> Series:
        return Series(2 * self.width + 4, FINE_BLOCKS, 2, self.device)

    def cell(self, name: str) -> Sums:
        """Return the sums of one of `CELLS`."""
        return self._merged(self._all_parts(), [name], gram=True)

    def sums(self, group: str, *, gram: bool = True) -> Sums:
        """Return the sums of a group of tokens, one of `sinks.GROUPS`: `all`, `without_first`,
        `without_sinks`.
        """
        return self._merged(self._all_parts(), _cells_of_group(group), gram=gram)

    def prefixes(self) -> Iterator[Sums]:
        """Return the sums of the tokens that are no sinks in the first 2, 4, 8, ... windows, as far
        as they are stored, the shortest text first.
        """
        parts = self.octaves.parts()
        return (
            self._merged(parts[:end], ORDINARY_CELLS, gram=True) for end in range(1, len(parts))
        )

    def _all_parts(self) -> list[CellSums]:
        return [*self.octaves.parts(), self.sinks]

    def _merged(self, parts: Sequence[CellSums], cells: Sequence[str], *, gram: bool) -> Sums:
        """Return the merge of these cells of these parts."""
        total = Sums(self.width, gram=gram, few=self.width, device=self.device)
        for part in parts:
            for cell in cells:
                if cell in part.cells:
                    total.merge(part.cells[cell])
        return total

    def occupied(self, group: str) -> tuple[str, ...]:
        """Return the cells of a group that hold any token: groups with the same cells have the same
        sums.
        """
        parts = self._all_parts()
        occupied = []
        for cell in _cells_of_group(group):
            if any(cell in part.cells and part.cells[cell].count for part in parts):
                occupied.append(cell)
        return tuple(occupied)

    @property
    def all(self) -> Sums:
        return self.sums("all")

    def merge(self, other: "SiteStatistics") -> None:
        self.fine.merge(other.blocks() if self.clusters is None else other.fine)
        self.octaves.merge(other.octaves)
        self.sinks.merge(other.sinks)
        self.squared_unit += other.squared_unit.to(self.squared_unit.device)
        self.sink_positions.merge(other.sink_positions)
        self.sink_tokens.merge(other.sink_tokens)
        if self.clusters is not None and other.clusters is not None:
            self.clusters.merge(other.clusters)
        if other.tiles is not None:
            # The centre of the other one is used, whose tiles may have begun.
            tiles = Tiles.restore(other.tiles.state())
            tiles.merge(self.tiles or Tiles(self.width, self.device))
            self.tiles = tiles

    def state(self) -> dict[str, Tensor]:
        state = {
            "width": torch.tensor(self.width),
            "skip_first": torch.tensor(self.skip_first),
            "lead": torch.tensor(self.lead),
            "bounded": torch.tensor(self.bounded),
        }
        state |= prefixed("fine", self.fine.state())
        state |= prefixed("octaves", self.octaves.state())
        state |= prefixed("sinks", self.sinks.state())
        state["squared_unit"] = self.squared_unit
        state |= prefixed("sink_positions", self.sink_positions.state())
        state |= prefixed("sink_tokens", self.sink_tokens.state())
        if self.clusters is not None:
            state |= prefixed("clusters", self.clusters.state())
        if self.tiles is not None:
            state |= prefixed("tiles", self.tiles.state())
        return state

    def restored(self, state: dict[str, Tensor]) -> Self:
        moved = {}
        for name, tensor in state.items():
            summed = tensor.is_floating_point() and not name.startswith(SAMPLE)
            moved[name] = tensor.to(self.device) if summed else tensor
        return type(self).restore(moved)

    @classmethod
    def restore(cls, state: dict[str, Tensor]) -> Self:
        statistics = cls(
            int(state["width"]),
            skip_first=int(state["skip_first"]),
            lead=int(state["lead"]),
            bounded=bool(state["bounded"]),
            device=device_of(state),
        )
        statistics.fine = Series.restore(unprefixed("fine", state))
        statistics.octaves = statistics.octaves.restored(unprefixed("octaves", state))
        statistics.sinks = CellSums.restore(unprefixed("sinks", state))
        statistics.squared_unit = state["squared_unit"].clone()
        statistics.sink_positions = Occurrences.restore(unprefixed("sink_positions", state))
        statistics.sink_tokens = Occurrences.restore(unprefixed("sink_tokens", state))
        clusters = unprefixed("clusters", state)
        statistics.clusters = Clusters.restore(clusters) if clusters else None
        tiles = unprefixed("tiles", state)
        statistics.tiles = Tiles.restore(tiles) if tiles else None
        return statistics


def _ceil_div(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)


def _cells_of_group(group: str) -> list[str]:
    return [CELLS[index] for index in GROUPS[group]]


def _slice_of(rows: list[int]) -> slice | list[int]:
    """Return a slice for consecutive rows, whose tensors need no copy, else the rows themselves."""
    if rows[-1] - rows[0] + 1 == len(rows):
        return slice(rows[0], rows[-1] + 1)
    return rows
