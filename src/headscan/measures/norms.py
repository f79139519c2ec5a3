"""Measures of length: the mean norm, and the norm of the mean vector."""

import numpy as np

from headscan.measures.measure import measure
from headscan.run.vocabulary import Term
from headscan.statistics import Cloud
from headscan.statistics.linearisation import Gradient, Moments


def _mean_norm_gradient(_at: Moments) -> Gradient:
    """Return the derivative 1 by the mean norm."""
    return Gradient(norm=1.0)


@measure(
    Term(
        "Mean norm",
        sentence="The average length of a token's vector.",
        formula="Σ‖x‖ / n",
        range=(0.0, None),
        source="definition",
        undefined="no vectors",
        column="mean\nnorm",
    ),
    group="norms",
    order=2,
    docs="cones.md",
    gradient=_mean_norm_gradient,
)
def mean_norm(cloud: Cloud) -> float | None:
    """Return the average Euclidean norm, in the units of the activations.

    >>> mean_norm(Cloud.of_rows([[3, 4], [0, 1]]))
    3.0
    """
    return cloud.norm_sum / cloud.count if cloud.count else None


def _mean_vector_norm_gradient(at: Moments) -> Gradient | None:
    """Return the derivative μ/‖μ‖ by the mean."""
    length = float(np.linalg.norm(at.mean))
    return Gradient(mean=at.mean / length) if length > 0 else None


@measure(
    Term(
        "Norm of the mean vector",
        sentence="The length of the average of all tokens' vectors: how far the cloud has drifted "
        "from the origin.",
        formula="‖Σx‖ / n",
        range=(0.0, None),
        source="Godey et al. 2024, arXiv:2401.12143 (drift)",
        undefined="no vectors",
    ),
    group="norms",
    order=3,
    docs="cones.md",
    gradient=_mean_vector_norm_gradient,
)
def mean_vector_norm(cloud: Cloud) -> float | None:
    """Return ‖μ‖, at most the mean norm, which it equals when all vectors point the same way.

    >>> mean_vector_norm(Cloud.of_rows([[3, 4], [-3, -4]]))
    0.0
    """
    return float(np.linalg.norm(cloud.mean)) if cloud.count else None
