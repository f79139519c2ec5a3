"""The standard errors of one site's measures, from the influences of the text's documents or
windows.

A measure θ is a function of averages over tokens, so to first order its error is the average of one
number a token, ψ(x) = a·x/‖x‖ + b·x + c‖x‖ + xᵀDx + …, its derivative at the text that was read:
the infinitesimal jackknife, with documents as clusters.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from headscan.statistics.cloud import Cloud
from headscan.statistics.clusters import ClusterSums
from headscan.statistics.linearisation import Differentiable, Moments, influences
from headscan.statistics.reservoir import GROUPS
from headscan.statistics.site import SiteStatistics
from headscan.statistics.tiles import SIGNS, Tiles
from headscan.statistics.uncertainty import (
    Bounds,
    Cells,
    Floats,
    StandardError,
    deviations,
    enough_documents,
    number,
)


class Estimator(Differentiable, Protocol):
    """A statistic with a range, and with tighter ends for n vectors in d dimensions."""

    @property
    def range(self) -> Bounds: ...
    def ends(self, count: int, width: int) -> Bounds: ...


@dataclass(eq=False)
class Errors:
    """The clusters of one site's tokens, and the influences that they have on its measures.

    Clusters are documents where the text has at least three (in effect: (Σn)²/Σn² of their tokens
    n), else windows, and the intervals speak of this text. `together` neighbours are one cluster
    where there are more than 64. counts [G, C]: the tokens of each treatment (`GROUPS`) and
    cluster; influences [G, J, C], filled as clouds are shown to `cells`. `why` there is nothing.
    `rounding`: the largest that the function of this name says of the clouds shown so far.
    """

    measures: Sequence[Estimator]
    clusters: str = "windows"
    together: int = 1
    counts: Floats = field(default_factory=lambda: np.zeros((len(GROUPS), 0)))
    influences: Floats = field(default_factory=lambda: np.zeros((len(GROUPS), 0, 0)))
    sums: ClusterSums | None = None
    why: str = ""
    tiles: Tiles | None = None
    rounding: float = 0.0

    @classmethod
    def of(cls, statistics: SiteStatistics, measures: Sequence[Estimator]) -> "Errors":
        """From finished statistics."""
        if statistics.clusters is None:
            return cls(measures, why="it was not asked for before the pass", tiles=statistics.tiles)
        for kind in ("documents", "windows"):
            sums = statistics.clusters.of(kind)
            tokens = sums.sums[:, :, 2 * statistics.width].numpy()
            if kind == "windows" or enough_documents(tokens.sum(0)):
                break
        counts = np.stack([tokens[list(cells)].sum(0) for cells in GROUPS.values()])
        influences = np.full((len(GROUPS), len(measures), counts.shape[1]), np.nan)
        return cls(
            measures,
            kind,
            sums.size,
            counts,
            influences,
            sums,
            "" if counts.size else "no text",
            statistics.tiles,
        )

    def reason(self, measure: Estimator) -> str:
        """Why a defined measure has no interval."""
        groups = self.counts.shape[1]
        if self.why:
            return self.why
        if groups < 3:
            return f"three windows of text are needed, there are {groups}"
        if measure.gradient is None:
            return "its derivative is not known: register the measure with `gradient`"
        return (
            "it has no derivative here, or too few vectors were read for it to tell the error "
            "(docs/intervals.md)"
        )

    def deviation(self, group: int, influences: Floats) -> StandardError | None:
        """The error that influences [C] on a number of a treatment make."""
        make = StandardError.of_documents if self.clusters == "documents" else StandardError.of_text
        return make(influences, self.counts[group])

    def cells(self, groups: Sequence[int], cloud: Cloud, cells: Cells) -> Cells:
        """NAME_interval of the estimates in `cells`, what the clusters are, and their effective
        number, of the cloud of some treatments, which have the same tokens.
        """
        found: Cells = {}
        effective: list[float] = []
        if self.sums is not None and self.counts.shape[1] >= 3 and cloud.count:
            self.influences[list(groups)] = influences(
                self.measures, cloud, self.sums, list(GROUPS.values())[groups[0]]
            )
        for j, measure in enumerate(self.measures):
            estimate = number(cells[measure.name])
            interval = None
            known = self.influences.size and not np.isnan(self.influences[groups[0], j, 0])
            deviation = self.deviation(groups[0], self.influences[groups[0], j]) if known else None
            if estimate is not None and deviation is not None:
                effective.append(deviation.effective * self.together)
                # zeros have no direction, and add no rank
                ends = measure.ends(cloud.count - cloud.zeros, cloud.width)
                interval = list(deviation.interval(estimate, bounds=ends, scale=measure.range))
            found[f"{measure.name}_interval"] = interval
        found["effective_clusters"] = min(effective) if effective else None
        found["clusters"] = self.clusters if effective else None
        self.rounding = max(
            self.rounding, rounding(self.measures, cloud, self.tiles, cells | found)
        )
        return found


def paired_error(a: Errors, b: Errors, group: int, j: int) -> StandardError | None:
    """That of the difference of measure `j` between two sites that read the same text; None where
    they did not.

    Each cluster's influences are subtracted before their spread is taken. Documents count with
    their shares of both texts, because two tokenizers cut them differently.
    """
    if (a.clusters, a.together, a.counts.shape) != (
        b.clusters,
        b.together,
        b.counts.shape,
    ) or not a.counts.size:
        return None
    if a.clusters == "windows" and not np.array_equal(a.counts[0], b.counts[0]):
        return None
    counts = [errors.counts[group] for errors in (a, b)]
    rests = [
        deviations(errors.influences[group, j], n) / n.sum()
        for errors, n in zip((a, b), counts, strict=True)
    ]
    shares = sum(n / n.sum() for n in counts) / 2
    make = StandardError.of_documents if a.clusters == "documents" else StandardError.of_text
    return make(rests[0] - rests[1], shares)


SAFETY = 2.0  # the measured error is that of a sample: twice as much is assumed
# allowed: this much of a number, or this share of the width of its interval
RELATIVE = 1e-6
SHARE = 1e-3


def rounding(
    measures: Sequence[Differentiable], cloud: Cloud, tiles: Tiles | None, cells: Cells
) -> float:
    """The largest error that tiles can have left in a number of a cloud, in units of what it may
    be: `RELATIVE` of the number in `cells`, or `SHARE` of the width of its interval NAME_interval,
    whichever is larger; of singular values by the norm of their squares. 0 without tiles; infinite
    where a measure has a value and no derivative.
    """
    if tiles is None or not tiles.tiles or not cloud.count:
        return 0.0
    spectral = any(measure.spectral for measure in measures)
    moments = Moments.of(cloud, spectral=spectral)
    checked, energy = (max(value, 1e-300) for value in tiles.checked.tolist())
    sums = SAFETY * np.abs(tiles.sums.cpu().numpy()) / checked
    unit, mean = (
        float(np.linalg.norm(part)) for part in (sums[: tiles.width], sums[tiles.width : -4])
    )
    worst = second = bias = 0.0
    if spectral:
        assert tiles.centre is not None
        shift = float(np.linalg.norm(cloud.mean - tiles.centre.cpu().numpy()))
        scale = SAFETY * (float(np.trace(cloud.covariance)) + shift**2) / energy
        lost = tiles.products.square().sum() / SIGNS, (tiles.signs * tiles.products).sum() / SIGNS
        second = scale * float(lost[0]) ** 0.5 + 2 * mean * shift  # of the covariance
        bias = scale * abs(float(lost[1])) + second
        worst = (second + 2 * mean * float(np.linalg.norm(cloud.mean))) / max(
            RELATIVE * moments.trace, 1e-300
        )
    for measure in measures:
        value = number(cells[measure.name])
        interval = cells.get(f"{measure.name}_interval")
        if value is None:
            continue
        gradient = None if measure.gradient is None else measure.gradient(moments)
        if gradient is None:
            return float("inf")
        error = float(abs(gradient.norm) * sums[-2] + abs(gradient.square) * sums[-1])
        for lost_sum, by in ((unit, gradient.unit), (mean, gradient.mean)):
            error += 0.0 if by is None else lost_sum * float(np.linalg.norm(by))
        if gradient.energies is not None:
            slope = gradient.energies
            error += (
                abs(float(slope.mean())) * bias
                + float(np.linalg.norm(slope - slope.mean())) * second
            )
            error += abs(gradient.outer) * float(cloud.mean @ cloud.mean) * second
            if not gradient.centred:  # vᵢᵀδMvᵢ has 2(vᵢ·μ)(vᵢ·δμ), and (vᵢ·μ)² ≤ λᵢ
                error += 2 * mean * float(np.sqrt(slope**2 @ moments.energies))
        width = interval[1] - interval[0] if isinstance(interval, list) else 0.0
        worst = max(worst, error / max(RELATIVE * abs(value), SHARE * width, 1e-300))
    return worst if np.isfinite(worst) else float("inf")


def allowed(shares: Sequence[float]) -> str:
    """The protocol's sentence of the sites' arithmetic, from what `rounding` says of each."""
    tiled = [share for share in shares if share > 0]
    if not tiled:
        return "Sums in float64."
    return (
        f"Second moments of {len(tiled)} of {len(shares)} sites from float32 products of tiles "
        "about a centre, summed in float64. Measured on every eighth tile, no number is further "
        f"from float64's than {max(tiled):.2g} of what is allowed: {RELATIVE:g} of it, or "
        f"{SHARE:g} of its interval's width (of squared singular values, {RELATIVE:g} of their "
        "sum). --arithmetic exact takes float64 throughout."
    )
