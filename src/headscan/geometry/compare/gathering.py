"""What one pass over the text leaves of several models: cross-moments, the same of groups of documents, a sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from headscan.geometry.compare.prepared import principal
from headscan.geometry.compare.reading import Aligned
from headscan.statistics import Blocks, Reservoir, Sums
from headscan.statistics.cross import CrossMoments

__all__ = ["GROUPS", "Gathering", "Sampled"]

GROUPS = 16
"""Groups of consecutive documents (or windows) that intervals leave out, one at a time: between 9 and 16 are occupied."""
DIRECTIONS = 24  # of each site, in which the groups' moments are kept
RUN = 16  # tokens of a sampled window
FEW = 4  # documents in the first batch from which on they, and not windows, are the clusters


@dataclass(frozen=True)
class Sampled:
    """The sample: rows [windows, m, d] of each site, the windows' numbers, ids [windows, T], positions [windows, m] in
    them, and documents [windows]. All is in the order of the text."""

    states: Sequence[Tensor]
    numbers: Tensor
    ids: Tensor
    positions: Tensor
    documents: Tensor


class Gathering:
    """Takes in aligned tokens of several models, in one pass.

    `models[u]` is the model of site u. From the first batch come the points about which sums are taken, and the 24 principal
    components of each site in which groups of documents are told apart.
    """

    def __init__(self, models: Sequence[int], *, sample: int, seed: int):
        self.models, self.sample, self.seed = list(models), sample, seed
        self.begun = False
        self.tokens = 0

    def _begin(self, first: Aligned, rows: Sequence[Tensor]) -> None:
        self.begun = True
        self.moments = CrossMoments(self.models, [x.mean(0, dtype=torch.float64).to(x.dtype) for x in rows])
        self.bases = [principal(x, DIRECTIONS).to(x.dtype) for x in rows]
        self.ends = list(accumulate(basis.shape[1] for basis in self.bases))
        self.groups = Blocks(GROUPS, lambda: Sums(self.ends[-1], device=rows[0].device))
        self.clusters = "documents" if len(np.unique(first.documents)) >= FEW else "windows"
        _, sizes = np.unique(first.windows, return_counts=True)
        self.run = int(min(RUN, max(1, np.median(sizes))))
        self.reservoir = Reservoir(max(2, self.sample // self.run), self.seed)

    def add(self, found: Aligned) -> None:
        """Take in some tokens, whole windows of the first model."""
        states = [rows for model in found.states for rows in model]
        device = states[0].device
        rows = [x.to(device) if x.dtype == torch.float64 else x.to(device).float() for x in states]
        if not self.begun:
            self._begin(found, rows)
        self.tokens += len(found.windows)
        self.moments.update(rows)
        self._groups(found, rows)
        self._offer(found, rows)

    def _groups(self, found: Aligned, rows: Sequence[Tensor]) -> None:
        pilots = self.moments.pilots
        reduced = torch.cat([(x - p) @ b for x, p, b in zip(rows, pilots, self.bases, strict=True)], dim=1)
        units = found.documents if self.clusters == "documents" else found.windows
        self.groups.index(int(units[-1]))  # coarsens once, before any group of this batch is chosen
        number = units // self.groups.size
        cuts = np.flatnonzero(np.diff(number)) + 1
        for part in np.split(np.arange(len(number)), cuts):
            chosen = reduced[int(part[0]) : int(part[-1]) + 1]
            self.groups[int(units[part[0]])].merge(Sums.of_rows(chosen))

    def _offer(self, found: Aligned, rows: Sequence[Tensor]) -> None:
        numbers, starts, sizes = np.unique(found.windows, return_index=True, return_counts=True)
        whole = np.flatnonzero(sizes >= self.run)
        if not len(whole):
            return
        chosen = self.reservoir.offer(numbers[whole].tolist(), 1)
        if not len(chosen):
            return
        kept = whole[chosen.rows]
        places = np.linspace(0, 1, self.run) if self.run > 1 else np.zeros(1)
        index = starts[kept][:, None] + np.rint(places * (sizes[kept][:, None] - 1)).astype(np.int64)
        at = torch.from_numpy(index)
        where = np.searchsorted(found.numbers, numbers[kept])
        self.reservoir.put(
            chosen,
            {f"state.{u}": x[at.to(x.device).flatten()].unflatten(0, at.shape) for u, x in enumerate(rows)}
            | {
                "ids": torch.from_numpy(found.ids[where]),
                "position": torch.from_numpy(found.positions[index]),
                "document": torch.from_numpy(found.documents[index[:, 0]]),
            },
        )

    def sampled(self) -> Sampled:
        """The sample, in the order of the text."""
        numbers = self.reservoir.places[:, 0]
        order = numbers.argsort()
        columns = {name: column[order] for name, column in self.reservoir.columns.items()}
        states = [columns[f"state.{u}"] for u in range(len(self.models))] if columns else []
        return Sampled(states, numbers[order], *(columns.get(n, numbers) for n in ("ids", "position", "document")))
