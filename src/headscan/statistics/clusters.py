"""What each cluster of a text, a document or a stretch of windows, adds to the averages that measures are functions of.

Averages over tokens are summed exactly for each cluster. Second moments of each would be many matrices: a uniform sample of the
text's states stands for them, the same whatever the order or the split of the text. With both, the derivative of any measure is
taken at the whole text, when all of it was read (`headscan.statistics.errors`).
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from headscan.statistics.accumulator import Accumulator, lazy, sent
from headscan.statistics.reservoir import CELLS, Chosen, Reservoir

# The sample: eight tokens a dimension and at least 4,096, but no more than 16 MiB of float32, or a fifth of a second moment.
SAMPLE_TOKENS, SAMPLE_BYTES = 4096, 16 * 2**20
CLUSTERS = 64  # at most, of documents and of windows; beyond that neighbours are added
KINDS = ("documents", "windows")
CHUNK = 512  # tokens that are squared at a time: they stay near


def sample_tokens(width: int) -> int:
    """How many states of a site are kept for its intervals: 4,096 at width 384, 2,730 at 1,536, 1,638 at 8,192."""
    return max(1, min(max(SAMPLE_TOKENS, 8 * width), max(SAMPLE_BYTES, width**2 * 4 // 5) // (4 * width)))


def inverses(norms: Tensor) -> Tensor:
    """1/‖x‖, and 0 for what has no direction."""
    return norms.reciprocal().nan_to_num(posinf=0.0)


def token_sums(rows: Tensor, norms: Tensor) -> Tensor:
    """What each of n tokens [n, d] adds to the averages: x/‖x‖, x, 1, whether it is zero, ‖x‖, ‖x‖² [n, 2d + 4]."""
    directed = rows * inverses(norms)[:, None]
    scalars = torch.stack([torch.ones_like(norms), (norms == 0).double(), norms, norms.square()], dim=1)
    return torch.cat([directed, rows, scalars], dim=1)


@dataclass(frozen=True)
class Pieces:
    """B windows of T tokens [B, T, d], cut into the pieces of documents that they hold.

    states: in any precision; documents [B, T], the number of each token's; cells [B, T], the place in `CELLS` of each.

    The tokens that are not ordinary are few, and kept apart: their `place` [m] among the B·T; `apart` [2, m], on the states'
    device, that and the window of each; `alone` [m, 2d + 4], the `token_sums` of each; members [m], the cell of each, 2, 3, 1.

    rows: the ordinary others, zeros in place of those apart, in float64, or in float32 about a centre; inverse [B, T]: their
    1/‖x‖; ordinary [B, 2d + 4]: their `token_sums` by window.
    """

    states: Tensor
    documents: Tensor
    cells: Tensor
    place: Tensor
    apart: Tensor
    members: Tensor
    alone: Tensor
    rows: Tensor
    inverse: Tensor
    scalars: Tensor
    ordinary: Tensor
    centre: Tensor | None = None

    @classmethod
    def of(
        cls, states: Tensor, documents: Tensor, cells: Tensor, norms: Tensor | None = None, centre: Tensor | None = None
    ) -> Self:
        """Of the states alone, whose cells are known to the processor; with a centre [d], and `norms` [B, T], in float32."""
        place = cells.flatten().nonzero().flatten()
        place = place[((cells.flatten()[place] + 1) % 3).argsort(stable=True)]  # those of a cell, and first ones, are neighbours
        apart = sent(torch.stack([place, place // cells.shape[1]]), states.device)
        rare = states.flatten(0, 1)[apart[0]].double()
        alone = token_sums(rare, torch.linalg.vector_norm(rare, dim=-1))
        if centre is None or norms is None:
            rows = states.to(torch.float64, copy=True, memory_format=torch.contiguous_format)
            norms = torch.linalg.vector_norm(rows, dim=-1)
        else:
            rows = states - centre.float()
        rows.flatten(0, 1).index_fill_(0, apart[0], 0.0)
        kept = sent((cells == 0).to(rows.dtype), states.device)
        inverse = inverses(norms) * kept
        weights = torch.stack([inverse, kept], dim=1)
        directed = torch.bmm(weights, rows).double()  # in one reading of the rows
        if centre is not None:
            directed = directed.addcmul(weights.sum(-1, dtype=torch.float64)[..., None], centre)
        lengths, kept = (norms * kept).double(), kept.double()
        scalars = torch.stack([kept, kept - inverse.sign(), lengths, lengths.square()], dim=-1)
        ordinary = torch.cat([directed.flatten(1), scalars.sum(1)], dim=1)
        members = cells.flatten()[place]
        return cls(states, documents.cpu(), cells, place, apart, members, alone, rows, inverse, scalars, ordinary, centre)

    def those(self, chosen: Tensor) -> Tensor:
        """The rows of `alone` that are chosen, bool [m], neighbours, known to the processor."""
        start = int(chosen.long().argmax()) if len(chosen) else 0
        return self.alone[start : start + int(chosen.sum())]

    @lazy
    def sums(self) -> Tensor:
        """`token_sums` of each window [B, 2d + 4], of all tokens."""
        return self.ordinary.index_add(0, self.apart[1], self.alone)

    @lazy
    def starts(self) -> list[int]:
        begins = torch.ones(self.documents.shape, dtype=torch.bool)
        begins[:, 1:] = self.documents[:, 1:] != self.documents[:, :-1]
        return [*begins.flatten().nonzero().flatten().tolist(), begins.numel()]

    @property
    def squared_unit(self) -> Tensor:
        """Σx²/‖x‖² of the ordinary tokens, by coordinate [d]."""
        rows, squares = (self.rows if self.centre is None else self.states).flatten(0, 1), self.inverse.flatten().square()
        step = CHUNK if rows.device.type == "cpu" else len(rows)
        pairs = zip(rows.split(step), squares.split(step), strict=True)
        found = [(weights @ part.to(weights.dtype).square()).double() for part, weights in pairs]
        return found[0] if len(found) == 1 else torch.stack(found).sum(0)

    @property
    def whole(self) -> bool:
        return len(self.starts) == len(self.rows) + 1

    @lazy
    def piece_sums(self) -> Tensor:
        """`token_sums` of the ordinary tokens of each piece [n, 2d + 4]."""
        if self.whole:
            return self.ordinary
        scalars, tokens = self.scalars.flatten(0, 1), self.rows.flatten(0, 1)
        weights = torch.stack([self.inverse.flatten().double(), scalars[:, 0]])
        spans = list(pairwise(self.starts))
        directed = torch.stack([weights[:, a:b].to(tokens) @ tokens[a:b] for a, b in spans]).double()
        if self.centre is not None:
            directed += torch.stack([weights[:, a:b].sum(1) for a, b in spans])[..., None] * self.centre
        directed = directed.flatten(1)
        return torch.cat([directed, torch.stack([scalars[a:b].sum(0) for a, b in spans])], dim=1)


class Series(Accumulator):
    """At most `limit` sums of consecutive units (windows, documents), each of `columns` numbers, float64, of each of some cells.

    Unit u belongs to row u // size of its cell's `table` [cells, limit, columns]; a unit beyond the last row adds neighbours and
    doubles `size`.
    """

    arguments, fields = ("columns", "limit", "cells"), ("size", "table")

    def __init__(self, columns: int, limit: int, cells: int = 1, device: torch.device | str = "cpu"):
        self.columns, self.limit, self.cells, self.size = columns, limit, cells, 1
        self.table = torch.from_numpy(np.zeros((cells, limit, columns))).to(device)  # numpy's takes no memory until it is used

    def add(self, values: Tensor, units: Tensor, cells: Tensor | int = 0) -> None:
        """Add the numbers [n, columns] of these units [n] of these cells; the processor knows both."""
        self.reach(int(units.max()) // self.limit + 1)
        place = sent(units // self.size + self.limit * cells, self.table.device)
        self.table.flatten(0, 1).index_add_(0, place, values.double())

    def merge(self, other: "Series") -> None:
        self.reach(other.size)
        theirs = other.table.to(self.table.device)
        folded = theirs.reshape(self.cells, self.limit * other.size // self.size, -1, self.columns).sum(2)
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
    """Of C clusters: `sums` [4, C, 2d + 4], the `token_sums` of each of `CELLS`, and of the sampled states [m, d], float32, the
    cluster and the cell of each [m]. A cluster has `size` neighbouring documents or windows."""

    sums: Tensor
    states: Tensor
    clusters: Tensor
    cells: Tensor
    size: int


class Clusters(Accumulator):
    """Sums over the tokens of at most 64 clusters of documents, and as many of windows, and a sample of states."""

    arguments, fields = ("width",), ("sample", "tables")

    def __init__(self, width: int, device: torch.device | str = "cpu"):
        self.width, self.sample = width, Reservoir(sample_tokens(width))
        self._late: list[tuple[Chosen, dict[str, Tensor]]] = []  # what enters the sample next: each time it is copied whole
        self.tables = {kind: Series(2 * width + 4, CLUSTERS, len(CELLS), device) for kind in KINDS}

    def update(self, cut: Pieces, numbers: list[int]) -> None:
        """Add the windows with these numbers in the text."""
        length = cut.documents.shape[1]
        first = torch.tensor(cut.starts[:-1])
        pieces = torch.cat([torch.arange(len(first)), torch.searchsorted(first[1:], cut.place, right=True)])
        values = torch.cat([cut.piece_sums, cut.alone])
        cells = torch.cat([torch.zeros_like(first), cut.members])
        units = {"documents": cut.documents.flatten()[first], "windows": torch.tensor(numbers)[first // length]}
        for kind, own in units.items():
            self.tables[kind].add(values, own[pieces], cells)
        chosen = self.sample.offer(numbers, length)
        if len(chosen):
            columns = {"state": chosen.of(cut.states).float(), "document": chosen.of(cut.documents), "cell": chosen.of(cut.cells)}
            self._late.append((chosen, columns))
            if sum(len(late) for late, _ in self._late) > self.sample.size // 4:
                self._settle()

    def _settle(self) -> None:
        late, self._late = self._late, []
        if late:
            keys = np.concatenate([chosen.keys for chosen, _ in late])
            places = [place for chosen, _ in late for place in chosen.places]
            columns = {name: torch.cat([own[name] for _, own in late]) for name in late[0][1]}
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
        every, size, sample = self.tables[kind].table.cpu(), self.tables[kind].size, self.sample
        occupied = every[:, :, 2 * self.width].sum(0) > 0
        place = occupied.long().cumsum(0) - 1
        if not len(sample):
            none = torch.zeros(0, dtype=torch.int64)
            return ClusterSums(every[:, occupied], torch.zeros(0, self.width), none, none, size)
        units = sample.columns["document"] if kind == "documents" else sample.places[:, 0]
        return ClusterSums(every[:, occupied], sample.columns["state"], place[units // size], sample.columns["cell"], size)
