"""What each cluster of a text, a document or a stretch of windows, adds to the averages that
measures are functions of.

Averages over tokens are summed exactly for each cluster. Second moments of each would be many
matrices: a uniform sample of the text's states stands for them, the same whatever the order or the
split of the text. With both, the derivative of any measure is taken at the whole text, when all of
it was read (`headscan.statistics.errors`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from headscan.statistics.accumulator import Accumulator, fetched, sent
from headscan.statistics.reservoir import CELLS, Chosen, Reservoir

# The sample: eight tokens a dimension and at least 4,096, but no more than 16 MiB of float32, or a
# fifth of a second moment.
SAMPLE_TOKENS = 4096
SAMPLE_BYTES = 16 * 2**20
CLUSTERS = 64  # at most, of documents and of windows; beyond that neighbours are added
KINDS = ("documents", "windows")
SHORT = 128  # tokens that a product with each of their pieces' weights is taken of
CHUNK = 512  # tokens that are squared at a time: they stay near


def sample_tokens(width: int) -> int:
    """How many states of a site are kept for its intervals: 4,096 at width 384, 2,730 at 1,536,
    1,638 at 8,192.
    """
    return max(
        1, min(max(SAMPLE_TOKENS, 8 * width), max(SAMPLE_BYTES, width**2 * 4 // 5) // (4 * width))
    )


def token_sums(rows: Tensor, norms: Tensor) -> Tensor:
    """What each of n tokens [n, d] adds to the averages: x/‖x‖, x, 1, whether it is zero, ‖x‖, ‖x‖²
    [n, 2d + 4].
    """
    directed = rows / norms.clamp_min(torch.finfo(norms.dtype).tiny)[:, None]
    scalars = torch.ones_like(norms), (norms == 0).double(), norms, norms.square()
    return torch.cat([directed, rows, *(column[:, None] for column in scalars)], dim=1)


@dataclass(frozen=True)
class Pieces:
    """B windows of T tokens [B, T, d], cut into the n pieces of documents that they, or `SHORT` of
    their tokens, hold.

    states: in any precision; documents and cells [B, T]: the number of each token's document, its
    place in `CELLS`; rows: the ordinary tokens, zeros in place of the m others, in float64, or in
    float32 about a centre; apart [m]: the places of the others among the B·T, on the states'
    device; squares [B·T]: 1/‖x‖² of the tokens that are no sinks; ordinary: the `token_sums` of the
    ordinary tokens of each window, or `SHORT` of its tokens; values [n + m, 2d + 4]: of each
    piece's (some have none), then of each token apart, cell by cell; first and cell [n + m]: the
    place of the first token of each, and its cell.
    """

    states: Tensor
    documents: Tensor
    cells: Tensor
    apart: Tensor
    rows: Tensor
    squares: Tensor
    ordinary: Tensor
    values: Tensor
    first: Tensor
    cell: Tensor
    centre: Tensor | None = None

    @classmethod
    def of(
        cls,
        states: Tensor,
        documents: Tensor,
        cells: Tensor,
        norms: Tensor | None = None,
        centre: Tensor | None = None,
    ) -> Self:
        """Cut states of which the processor knows all else; with a centre [d], and `norms` [B, T],
        in float32.
        """
        place = cells.flatten().nonzero().flatten()
        place = place[cells.flatten()[place].argsort(stable=True)]
        apart = sent(place, states.device)
        rare = states.flatten(0, 1)[apart].double()
        alone = token_sums(rare, torch.linalg.vector_norm(rare, dim=-1))
        if centre is None or norms is None:
            rows = states.to(torch.float64, copy=True, memory_format=torch.contiguous_format)
            norms = torch.linalg.vector_norm(rows, dim=-1)
        else:
            rows = (states - centre).contiguous()
        rows.flatten(0, 1).index_fill_(0, apart, 0.0)
        # a longer window would have many pieces
        size = SHORT if cells.shape[1] % SHORT == 0 else cells.shape[1]
        own = documents.reshape(-1, size)
        code = cells.reshape(-1, size)
        norms = norms.reshape(-1, size)
        number = torch.nn.functional.pad((own[:, 1:] != own[:, :-1]).cumsum(1), (1, 0))
        pieces = number[:, None] == torch.arange(int(number.max()) + 1)[:, None]  # [N, P, size]
        # all sums are the same whatever the documents
        masks = [pieces[:, :1] | True, pieces][: pieces.shape[1]]
        kept, known, *parts = (
            sent(mask, norms.device).to(norms.dtype) for mask in (code == 0, code < 2, *masks)
        )
        unit = norms.reciprocal().nan_to_num(posinf=0.0) * known  # 0 for what has no direction
        weights = [
            part[:, :, None] * torch.stack([unit * kept, kept], dim=1)[:, None] for part in parts
        ]
        lengths = (norms * kept).double()
        ones = kept.double()
        scalars = torch.stack(
            [ones, ones - (unit * kept).sign(), lengths, lengths.square()], dim=-1
        )
        numbers = [
            [w.sum(-1, dtype=torch.float64), part.double() @ scalars]
            for w, part in zip(weights, parts, strict=True)
        ]
        known = sent(
            torch.cat([torch.cat(both, dim=-1).flatten(0, 1) for both in numbers]), states.device
        )
        single = sent(torch.cat([w.flatten() for w in (*weights, unit.square())]), states.device)
        *blocks, squares = single.split([w.numel() for w in (*weights, unit)])
        directed = rows.new_empty(len(known), 2, rows.shape[2])
        tokens = rows.view(len(own), size, -1)
        for block, made in zip(
            blocks, directed.split([mask[..., 0].numel() for mask in masks]), strict=True
        ):
            torch.bmm(
                block.view(len(own), -1, size), tokens, out=made.view(len(own), -1, rows.shape[2])
            )
        if centre is not None:
            directed = torch.addcmul(directed, known[:, :2, None], centre)
        every = torch.cat([torch.cat([directed.flatten(1), known[:, 2:]], dim=1), alone])
        begins = (pieces.long().argmax(2) + size * torch.arange(len(own))[:, None]).flatten()
        ordinary = every[: len(own)]
        values = every[-len(begins) - len(place) :]
        cell = torch.cat([torch.zeros_like(begins), cells.flatten()[place]])
        return cls(
            states,
            documents,
            cells,
            apart,
            rows,
            squares,
            ordinary,
            values,
            torch.cat([begins, place]),
            cell,
            centre,
        )

    @property
    def by_cell(self) -> Sequence[Tensor]:
        """The `values` of each of `CELLS`."""
        return list(self.values.split(self.cell.bincount(minlength=len(CELLS)).tolist()))

    @property
    def squared_unit(self) -> Tensor:
        """Σx²/‖x‖² of the tokens that are no sinks, by coordinate [d]."""
        rows = (self.rows if self.centre is None else self.states).flatten(0, 1)
        step = CHUNK if rows.device.type == "cpu" else len(rows)
        found = [
            (w[None] @ x.to(w.dtype).square())[0]
            for x, w in zip(rows.split(step), self.squares.split(step), strict=True)
        ]
        if self.centre is None:  # which has zeros in place of the first ones
            found.append(self.by_cell[1][:, : rows.shape[1]].square().sum(0))
        return found[0] if len(found) == 1 else torch.stack(found).sum(0, dtype=torch.float64)


class Series(Accumulator):
    """At most `limit` sums of consecutive units (windows, documents), each of `columns` numbers,
    float64, of each of some cells.

    Unit u belongs to row u // size of its cell's `table` [cells, limit, columns]; a unit beyond the
    last row adds neighbours and doubles `size`.
    """

    arguments = ("columns", "limit", "cells")
    fields = ("size", "table")

    def __init__(
        self, columns: int, limit: int, cells: int = 1, device: torch.device | str = "cpu"
    ):
        self.columns = columns
        self.limit = limit
        self.cells = cells
        self.size = 1
        # numpy's takes no memory until it is used
        self.table = torch.from_numpy(np.zeros((cells, limit, columns))).to(device)

    @staticmethod
    def add(values: Tensor, every: Sequence[tuple["Series", Tensor, Tensor | int]]) -> None:
        """Add the numbers [n, columns] to several series: of these units [n] of these cells, both
        known to the processor.
        """
        for series, units, _ in every:
            series.reach(int(units.max()) // series.limit + 1)
        places = torch.stack(
            [units // series.size + series.limit * cells for series, units, cells in every]
        )
        for (series, _, _), place in zip(every, sent(places, values.device), strict=True):
            series.table.flatten(0, 1).index_add_(0, place, values)

    def merge(self, other: "Series") -> None:
        self.reach(other.size)
        theirs = other.table.to(self.table.device)
        folded = theirs.reshape(
            self.cells, self.limit * other.size // self.size, -1, self.columns
        ).sum(2)
        self.table[:, : folded.shape[1]] += folded

    def state(self) -> dict[str, Tensor]:
        occupied = self.table.any(2).any(0)
        used = int(occupied.nonzero().max()) + 1 if bool(occupied.any()) else 0
        return super().state() | {"table": self.table[:, :used].contiguous()}

    def filled(self, state: dict[str, Tensor]) -> Self:
        super().filled(state)
        rest = self.table.new_zeros(self.cells, self.limit - self.table.shape[1], self.columns)
        self.table = torch.cat([self.table, rest], dim=1)
        return self

    def reach(self, size: int) -> None:
        """Add neighbours until a row has at least `size` units."""
        while self.size < size:
            self.size *= 2
            folded = self.table[:, ::2] + self.table[:, 1::2]
            self.table = torch.cat([folded, torch.zeros_like(folded)], dim=1)


class ClusterSums(NamedTuple):
    """Of C clusters: `sums` [4, C, 2d + 4], the `token_sums` of each of `CELLS`, and of the sampled
    states [m, d], float32, the cluster and the cell of each [m]. A cluster has `size` neighbouring
    documents or windows.
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

    arguments = ("width",)
    fields = ("sample", "tables")

    def __init__(self, width: int, device: torch.device | str = "cpu"):
        self.width = width
        self.sample = Reservoir(sample_tokens(width))
        self._late: list[
            tuple[Chosen, dict[str, Callable[[], Tensor]]]
        ] = []  # they enter the sample, copied whole, together
        self.tables = {kind: Series(2 * width + 4, CLUSTERS, len(CELLS), device) for kind in KINDS}

    def update(self, cut: Pieces, numbers: list[int]) -> list[tuple[Series, Tensor, Tensor | int]]:
        """Let windows with these numbers in the text into the sample; the tables that their
        `values` are to be added to.
        """
        here = cut.states.device.type == "cpu"
        if not here:  # what a card has sent for the batches before has arrived
            self._let_in()
        if len(chosen := self.sample.offer(numbers, cut.cells.shape[1])):
            columns = {"state": fetched(chosen.of(cut.states), torch.float32)}
            columns |= {
                "document": fetched(chosen.of(cut.documents)),
                "cell": fetched(chosen.of(cut.cells)),
            }
            self._late.append((chosen, columns))
        if here:
            self._let_in()
        units = (
            cut.documents.flatten()[cut.first],
            torch.tensor(numbers)[cut.first // cut.cells.shape[1]],
        )
        return [(self.tables[kind], own, cut.cell) for kind, own in zip(KINDS, units, strict=True)]

    def _let_in(self) -> None:
        """Enter what waits into the sample once it is a quarter of it: every site holds as much."""
        if sum(len(late) for late, _ in self._late) > self.sample.size // 4:
            self._settle()

    def _settle(self) -> None:
        late = self._late
        self._late = []
        if late:
            keys = np.concatenate([chosen.keys for chosen, _ in late])
            places = [place for chosen, _ in late for place in chosen.places]
            columns = {name: torch.cat([own[name]() for _, own in late]) for name in late[0][1]}
            self.sample.put(Chosen(keys, keys, keys, places), columns)

    def merge(self, other: "Clusters") -> None:
        self._settle()
        other._settle()
        super().merge(other)

    def state(self) -> dict[str, Tensor]:
        self._settle()
        return super().state()

    def of(self, kind: str) -> ClusterSums:
        """The sums of the clusters of one of `KINDS` that have tokens."""
        self._settle()
        every = self.tables[kind].table.cpu()
        size = self.tables[kind].size
        sample = self.sample
        occupied = every[:, :, 2 * self.width].sum(0) > 0
        place = occupied.long().cumsum(0) - 1
        if not len(sample):
            none = torch.zeros(0, dtype=torch.int64)
            return ClusterSums(every[:, occupied], torch.zeros(0, self.width), none, none, size)
        units = sample.columns["document"] if kind == "documents" else sample.places[:, 0]
        return ClusterSums(
            every[:, occupied],
            sample.columns["state"],
            place[units // size],
            sample.columns["cell"],
            size,
        )
