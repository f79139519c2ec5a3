"""Mean norm: The average length of a token's vector."""

from __future__ import annotations

import math

import numpy as np

from headscan.measures.measure import Field, ProbeWords, measure
from headscan.measures.probe import Probe, ProbeData, ProbeSetup
from headscan.run.vocabulary import Term
from headscan.statistics import Cloud, Tally
from headscan.statistics.errors import Noise, length_bias
from headscan.statistics.linearisation import Gradient, Moments
from headscan.statistics.part_sums import PathTally, PositionTally
from headscan.statistics.uncertainty import Cells, Z


def _mean_norm_gradient(at: Moments) -> Gradient:
    return Gradient(norm=1.0)


@measure(
    Term(
        "Mean norm", sentence="The average length of a token's vector.", formula="Σ‖x‖ / n", range=(0.0, None),
        source="definition", undefined="no vectors", column="mean\nnorm",
    ),
    group="norms", order=2, docs="cones.md", gradient=_mean_norm_gradient,
)  # fmt: skip
def mean_norm(cloud: Cloud) -> float | None:
    """Average Euclidean norm; in the units of the activations.

    >>> mean_norm(Cloud.of_rows([[3, 4], [0, 1]]))
    3.0
    """
    return cloud.norm_sum / cloud.count if cloud.count else None


def _mean_vector_norm_gradient(at: Moments) -> Gradient | None:
    length = float(np.linalg.norm(at.mean))
    return Gradient(mean=at.mean / length) if length > 0 else None


def _bias(cloud: Cloud, noise: Noise) -> float | None:
    length = mean_vector_norm(cloud)
    return None if length is None else length_bias(length, noise.mean, noise.error)


@measure(
    Term(
        "Norm of the mean vector",
        sentence="The length of the average of all tokens' vectors: how far the cloud has drifted from the origin.",
        formula="‖Σx‖ / n", range=(0.0, None), source="Godey et al. 2024, arXiv:2401.12143 (drift)",
        undefined="no vectors",
    ),
    group="norms", order=3, docs="cones.md", gradient=_mean_vector_norm_gradient, bias=_bias,
)  # fmt: skip
def mean_vector_norm(cloud: Cloud) -> float | None:
    """‖μ‖, at most the mean norm, which it equals when all vectors point the same way.

    >>> mean_vector_norm(Cloud.of_rows([[3, 4], [-3, -4]]))
    0.0
    """
    return float(np.linalg.norm(cloud.mean)) if cloud.count else None


NAMES = ("position_0", "position_1", "early", "late")
ABSENT = "windows have no such position, or no other, or all vectors are zero"


def length_ratios(tally: Tally) -> dict[str, float | None]:
    """Of each of the four places its mean length over that of all other positions, from a `PositionTally`'s sums; and how far
    from 1 the ratio at one position lies in 95 % of shuffles.

    A shuffle of each window's own lengths leaves the mean at one position unbiased, with variance s²(1 − 1/T) a window: the
    ratio's is that times (T/(T − 1))²/W over the squared mean of all, to first order. Cost O(1).
    """
    tokens, windows, whole = (float(tally[name]) for name in ("tokens", "windows", "norm"))
    found: dict[str, float | None] = dict.fromkeys((*NAMES, "shuffled"))
    if not tokens or not whole > 0:
        return found
    for name, total, count in zip(NAMES, tally["norms"].tolist(), tally["counts"].tolist(), strict=True):
        others = whole - total
        if 0 < count < tokens and others > 0:
            found[name] = (total / count) / (others / (tokens - count))
    length = tokens / windows
    if length > 1:
        variance = float(tally["spread"]) / windows * (1 - 1 / length) / windows
        found["shuffled"] = Z * math.sqrt(variance) * length / (length - 1) / (whole / tokens)
    return found


class PositionsProbe(Probe):
    """Are the first vectors of a window longer than the others?"""

    needs, tally = "vectors", PositionTally
    words = ProbeWords(
        name="positions", title="Length by position", group="norms",
        sentence="Are vectors longer at the first positions of a window? Their mean length there, over that of all others.",
        literature="Xiao et al. 2024, arXiv:2309.17453; Sun et al. 2024, arXiv:2402.17762",
        position="Position 0 is what it asks about.", docs="lengths.md",
        function="headscan.measures.norms.length_ratios", order=1, fields={
            "position_0": Field("position 0", "Mean length at position 0 over that of all other positions.",
                "mean‖x₀‖/mean‖x_t‖, t ≠ 0", range=(0, None), undefined=ABSENT, plotted=True),
            "position_1": Field("position 1", "The same of position 1.", range=(0, None), undefined=ABSENT, plotted=True),
            "early": Field("positions 2-15", "The same of positions 2 to 15.", range=(0, None), undefined=ABSENT,
                plotted=True),
            "late": Field("from 16 on", "The same of positions from 16 on.", range=(0, None), undefined=ABSENT),
            "shuffled": Field("null: shuffled",
                "How far from 1 the ratio at one position is in 95 % of shuffles of each window's lengths.",
                "normal 95 % reach", range=(0, None), undefined="windows of one token", interval="a quantile of a null"),
        },
    )  # fmt: skip

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        rows = [row for _, _, row in self.tallied(data, length_ratios)]
        return [{name: value for name, value in row.items() if name != "shuffled_interval"} for row in rows]


STILL = "a window of fewer than three tokens, or whose states do not move"


class PathsProbe(Probe):
    """Curvature, straightness and entropy of windows."""

    needs, tally = "vectors", PathTally
    words = ProbeWords(
        name="paths", title="Paths", group="words",
        sentence="How do a window's states turn from token to token, and how many directions does one window use?",
        literature="Hosseini and Fedorenko 2023 (arXiv:2311.04930); Skean et al. 2025 (arXiv:2502.02013)",
        position="Position 0 is part of the path.", docs="shapes.md",
        function="headscan.statistics.part_sums.turns", order=7, fields={
            "curvature": Field("curvature", "Mean angle between a step and the next one; 120° for independent states.",
                "mean arccos(v_k·v_{k+1}/‖v_k‖‖v_{k+1}‖)", range=(0, 180), unit="degrees", undefined=STILL, plotted=True),
            "curvature_shuffled": Field("its null", "The same with each window's tokens in another order.", range=(0, 180),
                unit="degrees", undefined=STILL, plotted=True),
            "straightness": Field("straightness", "From the first state to the last, over the length of the path.",
                "‖z_T − z_1‖/Σ‖v‖", range=(0, 1), undefined=STILL, plotted=True),
            "straightness_shuffled": Field("its null", "The same with each window's tokens in another order.", range=(0, 1),
                undefined=STILL),
            "prompt_entropy": Field("prompt entropy",
                "Entropy of the shares of energy of one window's directions (uncentred), over its most, averaged.",
                "−Σp log p/log min(T, d)", range=(0, 1), undefined="no window", plotted=True),
        },
    )  # fmt: skip

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        return [row for _, _, row in self.tallied(data, _numbers)]


def _numbers(tally: Tally) -> dict[str, float | None]:
    def over(above: str, below: str, unit: float = 1.0) -> float | None:
        count = float(tally[below])
        return unit * float(tally[above]) / count if count > 0.5 else None

    return {
        "curvature": over("angles", "turns", 180 / math.pi),
        "curvature_shuffled": over("angles_shuffled", "turns_shuffled", 180 / math.pi),
        "straightness": over("straight", "moving"),
        "straightness_shuffled": over("straight_shuffled", "moving"),
        "prompt_entropy": over("entropy", "tokens"),
    }
