"""Average cosine: The cosine between two tokens, averaged over all pairs."""

import math
from collections.abc import Sequence

import numpy as np

from headscan.measures.measure import Field, ProbeWords, measure
from headscan.measures.probe import Probe, ProbeData, ProbeSetup, suffixed
from headscan.measures.spectrum import share_ends, share_gradient, shares_of
from headscan.run.vocabulary import Term
from headscan.statistics import Cloud, SiteStatistics
from headscan.statistics.linearisation import Gradient, Moments
from headscan.statistics.uncertainty import Cells, jackknife

NO_AXIS = "another width, or directions that cancel out"


def _average_cosine_gradient(at: Moments) -> Gradient | None:
    """2m/(1 − z)², z the share of vectors without a direction."""
    directed = 1 - at.zeros
    if directed <= 0:
        return None
    return Gradient(
        unit=2 * at.unit / directed**2, zeros=2 * float(at.unit @ at.unit) / directed**3
    )


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
    ends=lambda count, width: (-1 / max(count - 1, 1), 1.0),
)
def average_cosine(cloud: Cloud) -> float | None:
    """Mean cosine over all ordered pairs of distinct vectors, exact.

    The double sum Σᵢⱼ ûᵢ·ûⱼ is ‖Σû‖², and its n diagonal terms are 1 each; so one vector sum
    replaces n² cosines. In [−1/(n−1), 1]. Vectors of norm zero have no direction and are left out.
    Cost O(nd) in place of O(n²d).

    >>> round(average_cosine(Cloud.of_rows([[1, 0], [0, 2], [1, 1]])), 6)
    0.471405
    """
    n = cloud.count - cloud.zeros
    return float((cloud.unit_sum @ cloud.unit_sum - n) / (n * (n - 1))) if n >= 2 else None


def _drift_gradient(at: Moments) -> Gradient | None:
    """μ/(‖μ‖·ν) by the mean and −‖μ‖/ν² by the mean norm ν."""
    length = float(np.linalg.norm(at.mean))
    if not length > 0 or not at.norm > 0:
        return None
    return Gradient(mean=at.mean / (length * at.norm), norm=-length / at.norm**2)


@measure(
    Term(
        "Drift",
        sentence="How much of a token's length is common to all tokens: 0 for a centred cloud, 1 "
        "when all vectors are equal.",
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
    """Norm of the mean over the mean norm; in [0, 1], the triangle inequality. Long vectors weigh
    more.

    >>> drift(Cloud.of_rows([[3.0, 4.0], [3.0, 4.0]]))
    1.0
    """
    return float(np.linalg.norm(cloud.vector_sum)) / cloud.norm_sum if cloud.norm_sum > 0 else None


def _top_direction_share_gradient(at: Moments) -> Gradient | None:
    """(v₁v₁ᵀ − share)/Σλ."""
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
    """Share of Σ‖x‖² along the first singular direction; in [1/d, 1]. Uncentred, so a cone's axis
    counts.

    >>> round(top_direction_share(Cloud.of_rows([[2, 0], [0, 1]])), 6)
    0.8
    """
    shares = shares_of(cloud)
    return None if shares is None else float(shares[0])


def axis_course(sites: Sequence[SiteStatistics], *, without_first: bool = False) -> list[Cells]:
    """Each site's axis against the one before, the first and the last: `to_previous`, `to_first`,
    `to_last`.

    Each with its 95 % interval over the sites' fine blocks of text; `without_first`: without position 0 of
    each window. A site has an axis, Σû/‖Σû‖, where ‖Σû‖ is at least 1e-12·n. Cost
    O(sites·blocks·d).
    """
    sums = []
    counts = []
    for statistics in sites:
        later, first = statistics.fine.table.cpu().numpy()
        all_positions = later + first
        width = statistics.width
        parts = (later if without_first else all_positions)[all_positions[:, -4] > 0]
        units = parts[:, :width]
        sizes = parts[:, -4] - parts[:, -3]
        # all, then without each block
        unit_sums = np.vstack([units.sum(0, keepdims=True), units.sum(0) - units])
        lengths = np.linalg.norm(unit_sums, axis=1)
        least = 1e-12 * np.concatenate([[sizes.sum()], sizes.sum() - sizes])
        sums.append(
            np.where(
                (lengths > least)[:, None], unit_sums / np.maximum(lengths, 1e-300)[:, None], np.nan
            )
        )
        counts.append(sizes)
    rows = []
    for k, mine in enumerate(sums):
        row: Cells = {}
        for name, reference in (
            ("to_previous", k - 1),
            ("to_first", 0),
            ("to_last", len(sums) - 1),
        ):
            known = reference >= 0 and sums[reference].shape == mine.shape
            cosines = (
                np.clip((mine * sums[reference]).sum(1), -1.0, 1.0)
                if known
                else np.full(len(mine), np.nan)
            )
            values = [None if math.isnan(value) else float(value) for value in cosines]
            row[name] = values[0]
            row[f"{name}_interval"] = jackknife(
                values[0], values[1:], counts[k], bounds=(-1.0, 1.0)
            )
        rows.append(row)
    return rows


class AxisProbe(Probe):
    """Does the cone keep its axis from layer to layer?"""

    needs = "vectors"
    words = ProbeWords(
        name="axis",
        title="The cone's axis",
        group="cones",
        sentence="Does the cone keep its place from layer to layer? Cosines between the axes "
        "Σû/‖Σû‖ of the sites.",
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

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        sites = [data.statistics[site] for site in data.clouds]
        both = zip(
            data.clouds, axis_course(sites), axis_course(sites, without_first=True), strict=True
        )
        return [
            {"site": site, **row} | suffixed(row_without_first)
            for site, row, row_without_first in both
        ]
