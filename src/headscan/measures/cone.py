"""Measures of the cone: average cosine, drift and top-direction share, and the probe of
its axis.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headscan.measures.measure import Field, ProbeWords, measure
from headscan.measures.probe import Probe, ProbeData, ProbeSetup, suffixed
from headscan.measures.spectrum import share_ends, share_gradient, shares_of
from headscan.run.vocabulary import Term
from headscan.statistics import Cloud, SiteStatistics
from headscan.statistics.linearisation import Gradient, Moments
from headscan.statistics.uncertainty import Bounds, Cells, Floats, jackknife

NO_AXIS = "another width, or directions that cancel out"


def _average_cosine_gradient(at: Moments) -> Gradient | None:
    """Return the derivative 2m/(1 − z)², with z the share of vectors without a direction."""
    directed = 1 - at.zeros
    if directed <= 0:
        return None
    return Gradient(
        unit=2 * at.unit / directed**2, zeros=2 * float(at.unit @ at.unit) / directed**3
    )


def _cosine_ends(count: int, _width: int) -> Bounds:
    """Return the least and greatest average cosine of `count` vectors."""
    return -1 / max(count - 1, 1), 1.0


@measure(
    Term(
        "Average cosine",
        sentence="The cosine between two tokens, averaged over all pairs: 0 for a round cloud, 1 "
        "for a needle.",
        formula="(‖Σû‖² − n) / (n(n − 1)),  û = x/‖x‖",
        range=(-1.0, 1.0),
        source="Ethayarajh 2019, arXiv:1909.00512; exact form: Godey et al. 2024, arXiv:2401.12143",
        undefined="fewer than two vectors that are not zero",
        column="average cosine",
    ),
    group="cones",
    order=1,
    docs="cones.md",
    gradient=_average_cosine_gradient,
    ends=_cosine_ends,
)
def average_cosine(cloud: Cloud) -> float | None:
    """Return the mean cosine over all ordered pairs of distinct vectors, exact.

    The double sum Σᵢⱼ ûᵢ·ûⱼ is ‖Σû‖², and its n diagonal terms are 1 each; so one vector sum
    replaces n² cosines. In [−1/(n−1), 1]. Vectors of norm zero have no direction and are left out.
    Cost O(nd) in place of O(n²d).

    >>> round(average_cosine(Cloud.of_rows([[1, 0], [0, 2], [1, 1]])), 6)
    0.471405
    """
    n = cloud.count - cloud.zeros
    if n < 2:
        return None
    return float((cloud.unit_sum @ cloud.unit_sum - n) / (n * (n - 1)))


def _drift_gradient(at: Moments) -> Gradient | None:
    """Return the derivatives μ/(‖μ‖·ν) by the mean and −‖μ‖/ν² by the mean norm ν."""
    length = float(np.linalg.norm(at.mean))
    if not length > 0 or not at.norm > 0:
        return None
    return Gradient(mean=at.mean / (length * at.norm), norm=-length / at.norm**2)


@measure(
    Term(
        "Drift",
        sentence="The part of a token's length that is common to all tokens: 0 for a centred "
        "cloud, 1 when all vectors are equal.",
        formula="‖Σx‖ / Σ‖x‖",
        range=(0.0, 1.0),
        source="Biś et al. 2021 (common drift); Godey et al. 2024, arXiv:2401.12143",
        undefined="no vectors, or all of them zero",
    ),
    group="cones",
    core=False,
    multiple=True,
    order=8,
    docs="cones.md",
    gradient=_drift_gradient,
)
def drift(cloud: Cloud) -> float | None:
    """Return the norm of the mean over the mean norm.

    It is in [0, 1] by the triangle inequality. Long vectors weigh more.

    >>> drift(Cloud.of_rows([[3.0, 4.0], [3.0, 4.0]]))
    1.0
    """
    if not cloud.norm_sum > 0:
        return None
    return float(np.linalg.norm(cloud.vector_sum)) / cloud.norm_sum


def _top_direction_share_gradient(at: Moments) -> Gradient | None:
    """Return the derivative (v₁v₁ᵀ − share)/Σλ."""
    if not at.trace > 0:
        return None
    first = np.zeros(len(at.energies))
    first[0] = 1.0
    return Gradient(energies=share_gradient(at, first, at.energies / at.trace))


@measure(
    Term(
        "Top-direction share",
        sentence="The share of the cloud's energy along its one strongest direction (uncentred).",
        formula="σ₁² / Σσ²",
        range=(0.0, 1.0),
        source="Ethayarajh 2019, arXiv:1909.00512 (maximum explainable variance, uncentred)",
        undefined="no vectors, or all of them zero",
        column="top\nshare",
    ),
    group="spectra",
    spectral=True,
    cost="O(d³) after one pass of O(nd²)",
    multiple=True,
    order=4,
    docs="spectra.md",
    gradient=_top_direction_share_gradient,
    ends=share_ends,
)
def top_direction_share(cloud: Cloud) -> float | None:
    """Return the share of Σ‖x‖² along the first singular direction; in [1/d, 1].

    It is uncentred, so a cone's axis counts.

    >>> round(top_direction_share(Cloud.of_rows([[2, 0], [0, 1]])), 6)
    0.8
    """
    shares = shares_of(cloud)
    return None if shares is None else float(shares[0])


@dataclass(frozen=True)
class _Axes:
    """The unit axes of a site [1 + blocks, d]: of all tokens, then without each block in turn.

    `sizes` are the numbers of the blocks' vectors with a direction. An axis that is not defined is
    NaN.
    """

    axes: Floats
    sizes: Floats


def _axes(statistics: SiteStatistics, *, without_first: bool) -> _Axes:
    """Return the axes of a site, from its sums by fine blocks of text."""
    later, first = statistics.blocks().table.cpu().numpy()
    all_positions = later + first
    sums = later if without_first else all_positions
    sums = sums[all_positions[:, -4] > 0]
    units = sums[:, : statistics.width]
    sizes = sums[:, -4] - sums[:, -3]
    unit_sums = np.vstack([units.sum(0, keepdims=True), units.sum(0) - units])
    lengths = np.linalg.norm(unit_sums, axis=1)
    least = 1e-12 * np.concatenate([[sizes.sum()], sizes.sum() - sizes])
    directions = unit_sums / np.maximum(lengths, 1e-300)[:, None]
    return _Axes(np.where((lengths > least)[:, None], directions, np.nan), sizes)


def _axis_cosines(axes: Floats, reference: Floats | None) -> list[float | None]:
    """Return the cosine of each axis to that of the reference, or None where it has none."""
    if reference is None or reference.shape != axes.shape:
        return [None] * len(axes)
    cosines = np.clip((axes * reference).sum(1), -1.0, 1.0)
    return [None if math.isnan(cosine) else float(cosine) for cosine in cosines]


def axis_course(sites: Sequence[SiteStatistics], *, without_first: bool = False) -> list[Cells]:
    """Return the cosines of each site's axis to that of the previous, the first and the last site.

    The keys are `to_previous`, `to_first` and `to_last`, each with its 95 % interval over the
    sites' fine blocks of text; `without_first`: without position 0 of each window. A site has an
    axis, Σû/‖Σû‖, where ‖Σû‖ is at least 1e-12·n. Cost O(sites·blocks·d).
    """
    courses = [_axes(statistics, without_first=without_first) for statistics in sites]
    rows: list[Cells] = []
    for k, course in enumerate(courses):
        references = {
            "to_previous": courses[k - 1].axes if k else None,
            "to_first": courses[0].axes,
            "to_last": courses[-1].axes,
        }
        row: Cells = {}
        for name, reference in references.items():
            cosine, *left_out = _axis_cosines(course.axes, reference)
            row[name] = cosine
            row[f"{name}_interval"] = jackknife(cosine, left_out, course.sizes, bounds=(-1.0, 1.0))
        rows.append(row)
    return rows


class AxisProbe(Probe):
    """Cosines between the cone's axes at different sites."""

    needs = "vectors"
    words = ProbeWords(
        name="axis",
        title="The cone's axis",
        group="cones",
        sentence="Does the axis of the cone change from layer to layer? Cosines between the "
        "axes Σû/‖Σû‖ of the sites.",
        literature="mean direction (Mardia and Jupp 2000)",
        position="Every number also without position 0 of each window.",
        docs="cones.md",
        function="headscan.measures.cone.axis_course",
        order=1,
        fields={
            "to_previous": Field(
                "to the site before",
                "Cosine to the axis one site before.",
                "a_l · a_{l−1}",
                range=(-1, 1),
                undefined=NO_AXIS,
                first=True,
                plotted=True,
            ),
            "to_first": Field(
                "to the first site",
                "Cosine to the axis of the first site.",
                "a_l · a_0",
                range=(-1, 1),
                undefined=NO_AXIS,
                first=True,
                plotted=True,
            ),
            "to_last": Field(
                "to the last site",
                "Cosine to the axis of the last site.",
                "a_l · a_L",
                range=(-1, 1),
                undefined=NO_AXIS,
                first=True,
            ),
        },
    )

    def rows(self, _setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        sites = [data.statistics[site] for site in data.clouds]
        courses = axis_course(sites)
        later_courses = axis_course(sites, without_first=True)
        rows: list[Cells] = []
        for site, course, later_course in zip(data.clouds, courses, later_courses, strict=True):
            rows.append({"site": site, **course} | suffixed(later_course))
        return rows
