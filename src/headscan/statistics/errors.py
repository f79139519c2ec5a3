"""The standard errors of one site's measures, from the influences of the text's documents or windows.

A measure θ is a function of averages over tokens, so to first order its error is the average of one number a token,
ψ(x) = a·x/‖x‖ + b·x + c‖x‖ + xᵀDx + …, its derivative at the text that was read: the infinitesimal jackknife, with documents as
clusters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from headscan.statistics.cloud import Cloud
from headscan.statistics.clusters import ClusterSums
from headscan.statistics.linearisation import Differentiable, influences
from headscan.statistics.reservoir import GROUPS
from headscan.statistics.site import SiteStatistics
from headscan.statistics.uncertainty import Bounds, Cells, Floats, StandardError, deviations, enough_documents, number


class Estimator(Differentiable, Protocol):
    """A statistic with a range, and with tighter ends for n vectors in d dimensions."""

    @property
    def range(self) -> Bounds: ...
    def ends(self, count: int, width: int) -> Bounds: ...


@dataclass(eq=False)
class Errors:
    """The clusters of one site's tokens, and the influences that they have on its measures.

    Clusters are documents where the text has at least three (in effect: (Σn)²/Σn² of their tokens n), else windows, and the
    intervals speak of this text. `together` neighbours are one cluster where there are more than 64. counts [G, C]: the tokens of
    each treatment (`GROUPS`) and cluster; influences [G, J, C], filled as clouds are shown to `cells`. `why` there is nothing.
    """

    measures: Sequence[Estimator]
    clusters: str = "windows"
    together: int = 1
    counts: Floats = field(default_factory=lambda: np.zeros((len(GROUPS), 0)))
    influences: Floats = field(default_factory=lambda: np.zeros((len(GROUPS), 0, 0)))
    sums: ClusterSums | None = None
    why: str = ""

    @classmethod
    def of(cls, statistics: SiteStatistics, measures: Sequence[Estimator]) -> Errors:
        """From finished statistics."""
        if statistics.clusters is None:
            return cls(measures, why="it was not asked for before the pass")
        for kind in ("documents", "windows"):
            sums = statistics.clusters.of(kind)
            tokens = sums.sums[:, :, 2 * statistics.width].numpy()
            if kind == "windows" or enough_documents(tokens.sum(0)):
                break
        counts = np.stack([tokens[list(cells)].sum(0) for cells in GROUPS.values()])
        influences = np.full((len(GROUPS), len(measures), counts.shape[1]), np.nan)
        return cls(measures, kind, sums.size, counts, influences, sums, "" if counts.size else "no text")

    def reason(self, measure: Estimator) -> str:
        """Why a defined measure has no interval."""
        groups = self.counts.shape[1]
        if self.why:
            return self.why
        if groups < 3:
            return f"three windows of text are needed, there are {groups}"
        if measure.gradient is None:
            return "its derivative is not known: register the measure with `gradient`"
        return "it has no derivative here, or too few vectors were read for it to tell the error (docs/intervals.md)"

    def deviation(self, group: int, influences: Floats) -> StandardError | None:
        """The error that influences [C] on a number of a treatment make."""
        make = StandardError.of_documents if self.clusters == "documents" else StandardError.of_text
        return make(influences, self.counts[group])

    def cells(self, groups: Sequence[int], cloud: Cloud, cells: Cells) -> Cells:
        """NAME_interval of the estimates in `cells`, what the clusters are, and their effective number, of the cloud of some
        treatments, which have the same tokens."""
        found: Cells = {}
        effective: list[float] = []
        if self.sums is not None and self.counts.shape[1] >= 3 and cloud.count:
            every = influences(self.measures, cloud, self.sums, list(GROUPS.values())[groups[0]])
            self.influences[list(groups)] = every
        for j, measure in enumerate(self.measures):
            estimate, interval = number(cells[measure.name]), None
            known = self.influences.size and not np.isnan(self.influences[groups[0], j, 0])
            deviation = self.deviation(groups[0], self.influences[groups[0], j]) if known else None
            if estimate is not None and deviation is not None:
                effective.append(deviation.effective * self.together)
                ends = measure.ends(cloud.count - cloud.zeros, cloud.width)  # zeros have no direction, and add no rank
                interval = list(deviation.interval(estimate, bounds=ends, scale=measure.range))
            found[f"{measure.name}_interval"] = interval
        found["effective_clusters"] = min(effective) if effective else None
        found["clusters"] = self.clusters if effective else None
        return found


def paired_error(a: Errors, b: Errors, group: int, j: int) -> StandardError | None:
    """That of the difference of measure `j` between two sites that read the same text; None where they did not.

    Each cluster's influences are subtracted before their spread is taken. Documents count with their shares of both texts,
    because two tokenizers cut them differently.
    """
    if (a.clusters, a.together, a.counts.shape) != (b.clusters, b.together, b.counts.shape) or not a.counts.size:
        return None
    if a.clusters == "windows" and not np.array_equal(a.counts[0], b.counts[0]):
        return None
    counts = [errors.counts[group] for errors in (a, b)]
    rests = [deviations(errors.influences[group, j], n) / n.sum() for errors, n in zip((a, b), counts, strict=True)]
    shares = sum(n / n.sum() for n in counts) / 2
    make = StandardError.of_documents if a.clusters == "documents" else StandardError.of_text
    return make(rests[0] - rests[1], shares)
