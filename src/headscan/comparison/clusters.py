"""Numbers of tokens with intervals: the clusters of the tokens are left out one at a time."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from headscan.comparison.alignment import Integers
from headscan.statistics.uncertainty import Cells, Floats, enough_documents, jackknife

Bounds = tuple[float | None, float | None]
"""The range that a number lies in; None where it has no limit."""

ANY: Bounds = (None, None)
NOT_NEGATIVE: Bounds = (0.0, None)
SHARE: Bounds = (0.0, 1.0)

FEWEST_CLUSTERS = 3
"""An interval takes so many clusters."""


@dataclass(frozen=True)
class Statistic:
    """A number that is computed from sums [k] over tokens, and the range that it lies in."""

    value: Callable[[Floats], float | None]
    bounds: Bounds = ANY


@dataclass(frozen=True)
class Clusters:
    """The clusters of tokens: documents, or windows where documents are few.

    Attributes:
        of_token: [n], the number of each token's cluster.
        sizes: [clusters], in tokens.
        running: whether they are windows of a running text.
    """

    of_token: Integers
    sizes: Floats
    running: bool

    @classmethod
    def of_documents(cls, documents: Integers) -> "Clusters":
        """Return the clusters of the tokens of windows, from their documents [windows, n]."""
        of_token = np.unique(documents.ravel(), return_inverse=True)[1]
        running = not enough_documents(_sizes(of_token))
        if running:
            windows, length = documents.shape
            of_token = np.repeat(np.arange(windows), length)
        return cls(of_token, _sizes(of_token), running)

    def part(self, tokens: Floats) -> "Clusters":
        """Return the clusters of the tokens for which `tokens` [m ≤ n] is true."""
        remaining = self.of_token[: len(tokens)][tokens]
        of_token = np.unique(remaining, return_inverse=True)[1]
        return Clusters(of_token, _sizes(of_token), self.running)

    @property
    def enough(self) -> bool:
        """Return whether there are clusters enough for an interval."""
        return len(self.sizes) >= FEWEST_CLUSTERS

    def sums(self, values: torch.Tensor) -> Floats:
        """Return the sums of values [n, k] over the tokens of each cluster [clusters, k]."""
        sums = torch.zeros(len(self.sizes), values.shape[1], dtype=torch.float64)
        return sums.index_add_(0, torch.from_numpy(self.of_token), values).numpy()

    def cells(self, values: Floats, statistics: Mapping[str, Statistic]) -> Cells:
        """Return statistics of the sums of values [n, k], as NAME and NAME_interval (95 %)."""
        sums = self.sums(torch.from_numpy(values))
        total = sums.sum(0)
        cells = Cells()
        for name, statistic in statistics.items():
            estimate = statistic.value(total)
            cells[name] = estimate
            left_out: list[float | None] = [None] * len(sums)
            if self.enough:
                left_out = [statistic.value(total - cluster) for cluster in sums]
            cells[f"{name}_interval"] = self.interval(estimate, left_out, statistic.bounds)
        return cells

    def interval(
        self, estimate: float | None, left_out: list[float | None], bounds: Bounds
    ) -> list[float] | None:
        """Return the interval of an estimate from those with a cluster left out."""
        return jackknife(estimate, left_out, self.sizes, running=self.running, bounds=bounds)

    def means(self, columns: Mapping[str, Floats], bounds: Mapping[str, Bounds]) -> Cells:
        """Return the mean over tokens of each column [n], with intervals.

        `bounds`: ranges by the names of columns; other columns have no limits.
        """
        count = np.ones(len(self.of_token))
        values = np.stack([*columns.values(), count], axis=1)
        statistics = {}
        for number, name in enumerate(columns):
            statistics[name] = Statistic(partial(_mean, number), bounds.get(name, ANY))
        return self.cells(values, statistics)


def _sizes(of_token: Integers) -> Floats:
    return np.bincount(of_token).astype(np.float64)


def _mean(column: int, sums: Floats) -> float:
    """Return the mean of a column; the last one holds the number of tokens."""
    return float(sums[column] / sums[-1])
