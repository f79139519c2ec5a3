"""The standard errors of one site's measures, from the influences of the text's documents or
windows.

A measure θ is a function of averages over tokens, so to first order its error is the average of one
number a token, ψ(x) = a·x/‖x‖ + b·x + c‖x‖ + xᵀDx + …, its derivative at the text that was read:
the infinitesimal jackknife, with documents as clusters.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, Self

import numpy as np

from headscan.statistics.cloud import Cloud
from headscan.statistics.clusters import ClusterSums
from headscan.statistics.linearisation import Differentiable, Gradient, Moments, influences
from headscan.statistics.sinks import GROUPS
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

SAFETY = 2.0
"""The rounding error is measured on a sample: this many times as much is assumed."""

RELATIVE = 1e-6
"""Rounding error that a number may have, as a share of the number."""

SHARE = 1e-3
"""Rounding error that a number may have, as a share of the width of its interval."""

TINY = 1e-300


class Estimator(Differentiable, Protocol):
    """A statistic with a range, and with tighter ends for n vectors in d dimensions."""

    @property
    def range(self) -> Bounds: ...
    def ends(self, count: int, width: int) -> Bounds: ...


@dataclass(eq=False)
class Errors:
    """The clusters of one site's tokens, and the influences that they have on its measures.

    Clusters are documents where the text has at least three (in effect: (Σn)²/Σn² of their tokens
    n), else windows; in the second case the intervals are those of this text.

    Attributes:
        measures: the J measures.
        clusters: "documents" or "windows".
        together: number of neighbouring documents or windows in a cluster, where there are more
            than 64.
        counts: the tokens of each treatment (`GROUPS`) and cluster [G, C].
        influences: filled when clouds are given to `cells` [G, J, C].
        sums: the sums of the clusters; None without intervals.
        unavailable: the reason why there are no clusters, or "".
        tiles: the tiles that the second moments come from.
        rounding: the largest error that the function of this name returned for the clouds so far.
    """

    measures: Sequence[Estimator]
    clusters: str = "windows"
    together: int = 1
    counts: Floats = field(default_factory=lambda: np.zeros((len(GROUPS), 0)))
    influences: Floats = field(default_factory=lambda: np.zeros((len(GROUPS), 0, 0)))
    sums: ClusterSums | None = None
    unavailable: str = ""
    tiles: Tiles | None = None
    rounding: float = 0.0

    @classmethod
    def of(cls, statistics: SiteStatistics, measures: Sequence[Estimator]) -> "Errors":
        """Return the clusters of finished statistics."""
        tiles = statistics.tiles
        if statistics.clusters is None:
            reason = "it was not asked for before the pass"
            return cls(measures, unavailable=reason, tiles=tiles)

        kind = "windows"
        if enough_documents(statistics.clusters.tokens("documents")):
            kind = "documents"
        sums = statistics.clusters.of(kind)
        count_column = 2 * statistics.width
        sums = sums._replace(states=sums.states.to(statistics.device))
        tokens = sums.sums[:, :, count_column].numpy()
        counts = np.stack([tokens[list(cells)].sum(0) for cells in GROUPS.values()])
        return cls(
            measures,
            clusters=kind,
            together=sums.size,
            counts=counts,
            influences=np.full((len(GROUPS), len(measures), counts.shape[1]), np.nan),
            sums=sums,
            unavailable="" if counts.size else "no text",
            tiles=tiles,
        )

    def reason(self, measure: Estimator) -> str:
        """Return why a measure that has a value has no interval."""
        clusters = self.counts.shape[1]
        if self.unavailable:
            return self.unavailable
        if clusters < 3:
            return f"three windows of text are needed, there are {clusters}"
        if measure.gradient is None:
            return "its derivative is not known: register the measure with `gradient`"
        return (
            "it has no derivative here, or too few vectors were read for it to tell the error "
            "(docs/intervals.md)"
        )

    def deviation(self, group: int, influences: Floats) -> StandardError | None:
        """Return the error that influences [C] give a number of a treatment."""
        return _standard_error(self.clusters, influences, self.counts[group])

    def cells(self, groups: Sequence[int], cloud: Cloud, cells: Cells) -> Cells:
        """Return NAME_interval of the estimates in `cells`, the kind of clusters, and their
        effective number.

        `groups` are the treatments that have the tokens of this cloud.
        """
        group = groups[0]
        if self.sums is not None and self.counts.shape[1] >= 3 and cloud.count:
            group_cells = list(GROUPS.values())[group]
            self.influences[list(groups)] = influences(self.measures, cloud, self.sums, group_cells)

        result: Cells = {}
        effective: list[float] = []
        for j, measure in enumerate(self.measures):
            estimate = number(cells[measure.name])
            deviation = None
            if self.influences.size and not np.isnan(self.influences[group, j, 0]):
                deviation = self.deviation(group, self.influences[group, j])
            interval = None
            if estimate is not None and deviation is not None:
                effective.append(deviation.effective * self.together)
                # zeros have no direction, and add no rank
                ends = measure.ends(cloud.count - cloud.zeros, cloud.width)
                interval = list(deviation.interval(estimate, bounds=ends, scale=measure.range))
            result[f"{measure.name}_interval"] = interval
        result["effective_clusters"] = min(effective, default=None)
        result["clusters"] = self.clusters if effective else None

        error = rounding(self.measures, cloud, self.tiles, cells | result)
        self.rounding = max(self.rounding, error)
        return result


def _standard_error(clusters: str, influences: Floats, counts: Floats) -> StandardError | None:
    if clusters == "documents":
        return StandardError.of_documents(influences, counts)
    return StandardError.of_text(influences, counts)


def paired_error(a: Errors, b: Errors, group: int, j: int) -> StandardError | None:
    """Return the error of the difference of measure `j` between two sites that read the same text.

    None where they did not. Each cluster's influences are subtracted before their spread is taken.
    Documents count with their shares of both texts, because two tokenizers cut them differently.
    """
    same_clusters = (
        a.clusters == b.clusters
        and a.together == b.together
        and a.counts.shape == b.counts.shape
        and a.counts.size > 0
    )
    if not same_clusters:
        return None
    if a.clusters == "windows" and not np.array_equal(a.counts[0], b.counts[0]):
        return None

    a_counts = a.counts[group]
    b_counts = b.counts[group]
    a_deviations = deviations(a.influences[group, j], a_counts) / a_counts.sum()
    b_deviations = deviations(b.influences[group, j], b_counts) / b_counts.sum()
    shares = (a_counts / a_counts.sum() + b_counts / b_counts.sum()) / 2
    return _standard_error(a.clusters, a_deviations - b_deviations, shares)


@dataclass(frozen=True)
class _MomentErrors:
    """The errors that tiles can have left in the averages of `Moments`.

    Attributes:
        unit, mean: norms of the errors of both vectors.
        norm, square: errors of both numbers.
        second: norm of the error of the covariance.
        trace: error of its trace.
    """

    unit: float
    mean: float
    norm: float
    square: float
    second: float = 0.0
    trace: float = 0.0

    @classmethod
    def of(cls, cloud: Cloud, tiles: Tiles, *, spectral: bool) -> Self:
        """Return the errors of a cloud's averages; those of the covariance only with `spectral`.

        The error E of the checked tiles' second moment is known along vectors r of random signs:
        the means of ‖Er‖² and rᵀEr are ‖E‖² and tr E.
        """
        checked, energy = (max(value, TINY) for value in tiles.checked.tolist())
        sums = SAFETY * np.abs(tiles.sums.cpu().numpy()) / checked
        unit = float(np.linalg.norm(sums[: tiles.width]))
        mean = float(np.linalg.norm(sums[tiles.width : -4]))
        if not spectral:
            return cls(unit, mean, sums[-2], sums[-1])

        assert tiles.centre is not None
        shift = float(np.linalg.norm(cloud.mean - tiles.centre.cpu().numpy()))
        scale = SAFETY * (cloud.variance + shift**2) / energy
        norm_square = tiles.products.square().sum() / SIGNS
        trace = (tiles.signs * tiles.products).sum() / SIGNS
        second = scale * float(norm_square) ** 0.5 + 2 * mean * shift
        trace_error = scale * abs(float(trace)) + second
        return cls(unit, mean, sums[-2], sums[-1], second, trace_error)

    def of_singular_values(self, moments: Moments) -> float:
        """Return the error of the squared singular values, as a share of what it may be."""
        error = self.second + 2 * self.mean * float(np.linalg.norm(moments.mean))
        return error / max(RELATIVE * moments.trace, TINY)

    def of_measure(self, gradient: Gradient, moments: Moments) -> float:
        """Return the error of a measure with this gradient."""
        error = float(abs(gradient.norm) * self.norm + abs(gradient.square) * self.square)
        if gradient.unit is not None:
            error += self.unit * float(np.linalg.norm(gradient.unit))
        if gradient.mean is not None:
            error += self.mean * float(np.linalg.norm(gradient.mean))
        if gradient.energies is None:
            return error

        # The derivative by M is average·I and a remainder R, which adds at most ‖R‖·second.
        slope = gradient.energies
        average = float(slope.mean())
        spread = float(np.linalg.norm(slope - average))
        mean_square = float(moments.mean @ moments.mean)
        outer = gradient.outer * mean_square
        if gradient.along_mean is None:
            remainder = spread + abs(outer)
        else:
            product = gradient.outer * (gradient.along_mean - average * mean_square)
            remainder = max(0.0, spread**2 + 2 * product + outer**2) ** 0.5
        error += abs(average) * self.trace + remainder * self.second
        if not gradient.centred:  # vᵢᵀδMvᵢ has 2(vᵢ·μ)(vᵢ·δμ), and (vᵢ·μ)² ≤ λᵢ
            error += 2 * self.mean * float(np.sqrt(slope**2 @ moments.energies))
        return error


def rounding(
    measures: Sequence[Differentiable], cloud: Cloud, tiles: Tiles | None, cells: Cells
) -> float:
    """Return the largest error that tiles can have left in a number of a cloud, as a share of what
    it may be.

    It may be `RELATIVE` of the number in `cells`, or `SHARE` of the width of its interval
    NAME_interval, whichever is larger; that of singular values is compared with the norm of their
    squares. 0 without tiles; infinite where a measure has a value and no derivative.
    """
    if tiles is None or not tiles.tiles or not cloud.count:
        return 0.0
    spectral = any(measure.spectral for measure in measures)
    moments = Moments.of(cloud, spectral=spectral)
    errors = _MomentErrors.of(cloud, tiles, spectral=spectral)
    largest = errors.of_singular_values(moments) if spectral else 0.0

    for measure in measures:
        value = number(cells[measure.name])
        if value is None:
            continue
        gradient = None if measure.gradient is None else measure.gradient(moments)
        if gradient is None:
            return float("inf")
        interval = cells.get(f"{measure.name}_interval")
        width = interval[1] - interval[0] if isinstance(interval, list) else 0.0
        allowance = max(RELATIVE * abs(value), SHARE * width, TINY)
        largest = max(largest, errors.of_measure(gradient, moments) / allowance)
    return largest if np.isfinite(largest) else float("inf")


def allowed(shares: Sequence[float]) -> str:
    """Return the protocol's sentence on the sites' arithmetic, from what `rounding` returned for
    each.
    """
    tiled = [share for share in shares if share > 0]
    if not tiled:
        return "Sums in float64."
    coarse = [share for share in tiled if share > 1]
    more = f" At {len(coarse)} sites that is more than is allowed." if coarse else ""
    return (
        f"Second moments of {len(tiled)} of {len(shares)} sites from float32 products of tiles "
        "about a centre, summed in float64. Measured on every eighth tile, no number is further "
        f"from float64's than {max(tiled):.2g} of what is allowed: {RELATIVE:g} of it, or "
        f"{SHARE:g} of its interval's width (of squared singular values, {RELATIVE:g} of their "
        f"sum).{more} --arithmetic exact takes float64 throughout."
    )
