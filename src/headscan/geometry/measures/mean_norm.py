"""Mean norm: The average length of a token's vector."""

from __future__ import annotations

from headscan.geometry.explained import MeasureWords
from headscan.geometry.measure import measure
from headscan.geometry.moments import Gradient, Moments
from headscan.statistics import Cloud

__all__ = ["mean_norm"]


def _gradient(at: Moments) -> Gradient:
    return Gradient(norm=1.0)


@measure(
    MeasureWords(
        title="Mean norm",
        group="norms",
        sentence="The average length of a token's vector.",
        formula="Σ‖x‖ / n",
        range=(0.0, None),
        source="definition",
        undefined="no vectors",
        column="mean\nnorm",
        order=2,
        docs="cones.md",
    ),
    gradient=_gradient,
)
def mean_norm(cloud: Cloud) -> float | None:
    """Average Euclidean norm; in the units of the activations.

    >>> mean_norm(Cloud.of_rows([[3, 4], [0, 1]]))
    3.0
    """
    return cloud.norm_sum / cloud.count if cloud.count else None
