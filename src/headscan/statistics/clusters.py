"""The sums over each cluster of a text, a document or a stretch of windows, and a sample of states:
what the intervals of a site's measures are made of.

Averages over tokens are summed exactly for each cluster. Second moments of each cluster would be
many matrices: a uniform sample of the text's states represents them, the same whatever the order or
the split of the text. With both, the derivative of any measure is taken at the whole text, when all
of it was read (`headscan.statistics.errors`).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from headscan.statistics.accumulator import Accumulator, device_of, prefixed, unprefixed
from headscan.statistics.pieces import Pieces
from headscan.statistics.reservoir import Chosen, Reservoir
from headscan.statistics.sinks import CELLS
from headscan.statistics.transfer import fetched, sent
from headscan.statistics.uncertainty import Floats

# The sample: eight tokens a dimension and at least 4,096, but no more than 16 MiB of float32, or a
# fifth of a second moment.
SAMPLE_TOKENS = 4096
SAMPLE_BYTES = 16 * 2**20

CLUSTERS = 64
"""At most so many clusters of documents and of windows; beyond that neighbours are added."""

KINDS = ("documents", "windows")


def sample_tokens(width: int) -> int:
    """Return how many states of a site are kept for its intervals.

    They are 4,096 at width 384, 2,730 at 1,536, 1,638 at 8,192.
    """
    enough = max(SAMPLE_TOKENS, 8 * width)
    affordable = max(SAMPLE_BYTES, width**2 * 4 // 5) // (4 * width)
    return max(1, min(enough, affordable))


class Series(Accumulator):
    """At most `limit` sums of consecutive units (windows, documents), for each of some cells.

    Each sum has `columns` numbers, float64. Unit u belongs to row u // size of its cell's `table`
    [cells, limit, columns]; a unit beyond the last row adds neighbours and doubles `size`.
    """

    def __init__(
        self, columns: int, limit: int, cells: int = 1, device: torch.device | str = "cpu"
    ):
        self.columns = columns
        self.limit = limit
        self.cells = cells
        self.size = 1
        shape = (cells, limit, columns)
        if torch.device(device).type == "cpu":
            self.table = torch.from_numpy(np.zeros(shape))  # no memory until they are used
        else:
            self.table = torch.zeros(shape, dtype=torch.float64, device=device)

    @staticmethod
    def add(values: Tensor, targets: Sequence[tuple["Series", Tensor, Tensor | int]]) -> None:
        """Add the numbers [n, columns] to several series, each with the units [n] and the cells.

        Units and cells are on the CPU.
        """
        for series, units, _ in targets:
            series.reach(int(units.max()) // series.limit + 1)
        row_indices = torch.stack(
            [units // series.size + series.limit * cells for series, units, cells in targets]
        )
        rows_on_device = sent(row_indices, values.device)
        for (series, _, _), rows in zip(targets, rows_on_device, strict=True):
            series.table.flatten(0, 1).index_add_(0, rows, values)

    def merge(self, other: "Series") -> None:
        self.reach(other.size)
        other_table = other.table.to(self.table.device)
        rows = self.limit * other.size // self.size
        folded = other_table.reshape(self.cells, rows, -1, self.columns).sum(2)
        self.table[:, : folded.shape[1]] += folded

    def reach(self, size: int) -> None:
        """Add neighbours until a row has at least `size` units."""
        while self.size < size:
            self.size *= 2
            folded = self.table[:, ::2] + self.table[:, 1::2]
            self.table = torch.cat([folded, torch.zeros_like(folded)], dim=1)

    def state(self) -> dict[str, Tensor]:
        """Return the constructor's numbers, the size, and the rows up to the last one used."""
        occupied = self.table.any(2).any(0)
        used = int(occupied.nonzero().max()) + 1 if bool(occupied.any()) else 0
        return {
            "columns": torch.tensor(self.columns),
            "limit": torch.tensor(self.limit),
            "cells": torch.tensor(self.cells),
            "size": torch.tensor(self.size),
            "table": self.table[:, :used].contiguous(),
        }

    @classmethod
    def restore(cls, state: dict[str, Tensor]) -> Self:
        columns, limit, cells = (int(state[name]) for name in ("columns", "limit", "cells"))
        series = cls(columns, limit, cells, device_of(state))
        series.size = int(state["size"])
        table = state["table"]
        series.table[:, : table.shape[1]] = table
        return series


class ClusterSums(NamedTuple):
    """The sums and the sampled states of C clusters, each of `size` neighbouring documents or
    windows.

    Attributes:
        sums: the `token_sums` of each of `CELLS` and cluster [4, C, 2d + 4].
        states: the sampled states [m, d], float32.
        clusters: the cluster of each sampled state [m].
        cells: the cell of each sampled state [m].
        size: number of neighbouring documents or windows in a cluster.
    """

    sums: Tensor
    states: Tensor
    clusters: Tensor
    cells: Tensor
    size: int


class Clusters(Accumulator):
    """Sums over the tokens of at most 64 clusters of documents, and as many of windows, and a
    sample of states.
    """

    def __init__(self, width: int, device: torch.device | str = "cpu"):
        self.width = width
        self.sample = Reservoir(sample_tokens(width))
        self.tables = {kind: Series(2 * width + 4, CLUSTERS, len(CELLS), device) for kind in KINDS}
        # Positions whose columns may still be on their way from a device; they are copied into the
        # sample together.
        self._pending: list[tuple[Chosen, dict[str, Callable[[], Tensor]]]] = []

    def update(
        self, pieces: Pieces, windows: list[int]
    ) -> list[tuple[Series, Tensor, Tensor | int]]:
        """Let windows with these numbers in the text into the sample.

        Return the tables that the `values` of the pieces are to be added to (`Series.add`).
        """
        length = pieces.cells.shape[1]
        on_cpu = pieces.states.device.type == "cpu"
        if not on_cpu:  # what a device has sent for earlier batches has arrived
            self._limit_pending()
        chosen = self.sample.offer(windows, length)
        if len(chosen):
            columns = {
                "state": fetched(chosen.of(pieces.states), torch.float32),
                "document": fetched(chosen.of(pieces.documents)),
                "cell": fetched(chosen.of(pieces.cells)),
            }
            self._pending.append((chosen, columns))
        if on_cpu:
            self._limit_pending()

        documents = pieces.documents.flatten()[pieces.first]
        window_of_value = torch.tensor(windows)[pieces.first // length]
        return [
            (self.tables["documents"], documents, pieces.cell),
            (self.tables["windows"], window_of_value, pieces.cell),
        ]

    def _limit_pending(self) -> None:
        """Enter the pending positions once they are a quarter of the sample: they take memory at
        every site.
        """
        pending = sum(len(chosen) for chosen, _ in self._pending)
        if pending > self.sample.size // 4:
            self._settle()

    def _settle(self) -> None:
        """Enter all pending positions into the sample."""
        pending = self._pending
        self._pending = []
        if not pending:
            return
        keys = np.concatenate([chosen.keys for chosen, _ in pending])
        places = [place for chosen, _ in pending for place in chosen.places]
        columns = {}
        for name in pending[0][1]:
            columns[name] = torch.cat([arrivals[name]() for _, arrivals in pending])
        self.sample.enter(keys, places, columns)

    def merge(self, other: "Clusters") -> None:
        self._settle()
        other._settle()
        self.sample.merge(other.sample)
        for kind in KINDS:
            self.tables[kind].merge(other.tables[kind])

    def state(self) -> dict[str, Tensor]:
        self._settle()
        state = {"width": torch.tensor(self.width)}
        state |= prefixed("sample", self.sample.state())
        for kind in KINDS:
            state |= prefixed(f"tables.{kind}", self.tables[kind].state())
        return state

    @classmethod
    def restore(cls, state: dict[str, Tensor]) -> Self:
        clusters = cls(int(state["width"]), device_of(state))
        clusters.sample = Reservoir.restore(unprefixed("sample", state))
        for kind in KINDS:
            clusters.tables[kind] = Series.restore(unprefixed(f"tables.{kind}", state))
        return clusters

    def tokens(self, kind: str) -> Floats:
        """Return the tokens of each cluster of one of `KINDS` that has any."""
        counts = self.tables[kind].table[:, :, 2 * self.width].sum(0).cpu().numpy()
        occupied: Floats = counts[counts > 0]
        return occupied

    def of(self, kind: str) -> ClusterSums:
        """Return the sums of the clusters of one of `KINDS` that have tokens."""
        self._settle()
        series = self.tables[kind]
        table = series.table.cpu()
        counts = table[:, :, 2 * self.width].sum(0)
        occupied = counts > 0
        sums = table[:, occupied]
        if not len(self.sample):
            none = torch.zeros(0, dtype=torch.int64)
            return ClusterSums(sums, torch.zeros(0, self.width), none, none, series.size)

        cluster_of_row = occupied.long().cumsum(0) - 1
        columns = self.sample.columns
        units = columns["document"] if kind == "documents" else self.sample.places[:, 0]
        clusters = cluster_of_row[units // series.size]
        return ClusterSums(sums, columns["state"], clusters, columns["cell"], series.size)
