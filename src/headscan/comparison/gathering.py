"""The statistics of one pass over several models: cross-moments, those of groups of documents, and
a sample.
"""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from headscan.comparison.alignment import Sampled, TokenVectors
from headscan.comparison.prepared import principal
from headscan.statistics import Blocks, Reservoir, Sums
from headscan.statistics.hsic import CrossMoments

GROUPS = 16
"""Groups of consecutive documents (or windows) that intervals leave out, one at a time; 9 to 16 of
them have tokens.
"""

DIRECTIONS = 24
"""Principal components of each site, in which the moments of the groups are taken."""

SAMPLED_RUN = 16
"""Tokens of a sampled window."""

FEWEST_DOCUMENTS = 4
"""From so many documents in the first batch on they are the clusters of intervals, else windows."""


class Gathering:
    """The sums of the aligned tokens of several models, in one pass.

    The points about which sums are taken come from the first batch, as do the 24 principal
    components of each site in which groups of documents are told apart.

    Attributes:
        models: the number of the model that each site belongs to.
        sample: tokens of the sample.
        tokens: how many tokens were added.
        moments: of all pairs of sites.
        groups: sums of the projected tokens, by groups of documents or windows.
        clusters: documents or windows.
    """

    def __init__(self, models: Sequence[int], *, sample: int, seed: int) -> None:
        self.models = list(models)
        self.sample = sample
        self.seed = seed
        self.begun = False
        self.tokens = 0

    def _begin(self, first: TokenVectors, rows: Sequence[Tensor]) -> None:
        self.begun = True
        means = [site_rows.mean(0, dtype=torch.float64).to(site_rows.dtype) for site_rows in rows]
        self.moments = CrossMoments(self.models, means)
        self.bases = [principal(site_rows, DIRECTIONS).to(site_rows.dtype) for site_rows in rows]
        self.ends = list(accumulate(basis.shape[1] for basis in self.bases))
        device = rows[0].device
        self.groups = Blocks(GROUPS, lambda: Sums(self.ends[-1], device=device))
        documents = len(np.unique(first.documents))
        self.clusters = "documents" if documents >= FEWEST_DOCUMENTS else "windows"
        _, sizes = np.unique(first.windows, return_counts=True)
        self.run = int(min(SAMPLED_RUN, max(1, np.median(sizes))))
        self.reservoir = Reservoir(max(2, self.sample // self.run), self.seed)

    def add(self, parts: Sequence[TokenVectors]) -> None:
        """Add the same tokens of all models, in complete windows of the first."""
        first = parts[0]
        states = [rows for part in parts for rows in part.states]
        device = states[0].device
        rows = [_on_device(site_rows, device) for site_rows in states]
        if not self.begun:
            self._begin(first, rows)
        self.tokens += len(first.keys)
        self.moments.update(rows)
        self._add_to_groups(first, rows)
        self._offer(first, rows)

    def _add_to_groups(self, first: TokenVectors, rows: Sequence[Tensor]) -> None:
        """Add the tokens to the sums of their groups of documents or windows."""
        projections = []
        for site_rows, mean, basis in zip(rows, self.moments.pilots, self.bases, strict=True):
            projections.append((site_rows - mean) @ basis)
        projected = torch.cat(projections, dim=1)
        units = first.documents if self.clusters == "documents" else first.windows
        self.groups.index(int(units[-1]))  # coarsens once, before any group of this batch is chosen
        numbers = units // self.groups.size
        cuts = np.flatnonzero(np.diff(numbers)) + 1
        starts = [0, *cuts.tolist()]
        ends = [*cuts.tolist(), len(numbers)]
        for start, end in zip(starts, ends, strict=True):
            self.groups[int(units[start])].merge(Sums.of_rows(projected[start:end]))

    def _offer(self, first: TokenVectors, rows: Sequence[Tensor]) -> None:
        """Offer the windows to the sample; of each, tokens at equal distances enter it."""
        numbers, starts, sizes = np.unique(first.windows, return_index=True, return_counts=True)
        long_enough = np.flatnonzero(sizes >= self.run)
        offered = self.reservoir.offer(numbers[long_enough].tolist(), 1)
        if not len(offered):
            return
        sampled = long_enough[offered.rows]
        steps = np.linspace(0, 1, self.run) if self.run > 1 else np.zeros(1)
        offsets = np.rint(steps * (sizes[sampled][:, None] - 1)).astype(np.int64)
        index = starts[sampled][:, None] + offsets  # [windows, run]
        row_index = torch.from_numpy(index)
        columns = {}
        for site, site_rows in enumerate(rows):
            flat = row_index.to(site_rows.device).flatten()
            columns[f"state.{site}"] = site_rows[flat].unflatten(0, row_index.shape)
        ids = first.ids[np.searchsorted(first.window_numbers, numbers[sampled])]
        columns["ids"] = torch.from_numpy(ids)
        columns["position"] = torch.from_numpy(first.positions[index])
        columns["document"] = torch.from_numpy(first.documents[index[:, 0]])
        self.reservoir.put(offered, columns)

    def sampled(self) -> Sampled:
        """Return the sample, in the order of the text."""
        numbers = self.reservoir.places[:, 0]
        order = numbers.argsort()
        numbers = numbers[order]
        if not self.reservoir.columns:
            return Sampled([], numbers, numbers, numbers, numbers)
        columns = {name: column[order] for name, column in self.reservoir.columns.items()}
        return Sampled(
            [columns[f"state.{site}"] for site in range(len(self.models))],
            numbers,
            columns["ids"],
            columns["position"],
            columns["document"],
        )


def _on_device(rows: Tensor, device: torch.device) -> Tensor:
    """Return rows on a device, in float32 at least."""
    moved = rows.to(device)
    return moved if rows.dtype == torch.float64 else moved.float()
