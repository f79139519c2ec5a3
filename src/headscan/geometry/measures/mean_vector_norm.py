"""Norm of the mean vector: The length of the average of all tokens' vectors."""

from __future__ import annotations

import numpy as np

from headscan.geometry.explained import MeasureWords
from headscan.geometry.measure import measure
from headscan.geometry.moments import Gradient, Moments
from headscan.geometry.noise import Noise, length_bias
from headscan.statistics import Cloud

__all__ = ["mean_vector_norm"]


def _gradient(at: Moments) -> Gradient | None:
    length = float(np.linalg.norm(at.mean))
    return Gradient(mean=at.mean / length) if length > 0 else None


def _bias(cloud: Cloud, noise: Noise) -> float | None:
    """The mean vector is too long by what is noise in it."""
    length = mean_vector_norm(cloud)
    return None if length is None else length_bias(length, noise.mean, noise.error)


@measure(
    MeasureWords(
        title="Norm of the mean vector",
        group="norms",
        sentence="The length of the average of all tokens' vectors: how far the cloud has drifted from the origin.",
        formula="‖Σx‖ / n",
        range=(0.0, None),
        source="Godey et al. 2024, arXiv:2401.12143 (drift)",
        undefined="no vectors",
        order=3,
        docs="cones.md",
    ),
    gradient=_gradient,
    bias=_bias,
)
def mean_vector_norm(cloud: Cloud) -> float | None:
    """‖μ‖, at most the mean norm, which it equals when all vectors point the same way.

    >>> mean_vector_norm(Cloud.of_rows([[3, 4], [-3, -4]]))
    0.0
    """
    return float(np.linalg.norm(cloud.mean)) if cloud.count else None
