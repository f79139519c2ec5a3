"""Drift: How much of a token's length is common to all tokens."""

from __future__ import annotations

import numpy as np

from headscan.geometry.explained import MeasureWords
from headscan.geometry.measure import measure
from headscan.geometry.moments import Gradient, Moments
from headscan.geometry.noise import Noise, length_bias
from headscan.statistics import Cloud

__all__ = ["drift"]


def _gradient(at: Moments) -> Gradient | None:
    """μ/(‖μ‖·ν) by the mean and −‖μ‖/ν² by the mean norm ν."""
    length = float(np.linalg.norm(at.mean))
    if not length > 0 or not at.norm > 0:
        return None
    return Gradient(mean=at.mean / (length * at.norm), norm=-length / at.norm**2)


def _bias(cloud: Cloud, noise: Noise) -> float | None:
    """The mean vector is too long by what is noise in it."""
    value = drift(cloud)
    if value is None:
        return None
    length = cloud.norm_sum / cloud.count
    return length_bias(value, noise.mean / length**2, noise.error)


@measure(
    MeasureWords(
        title="Drift",
        group="cones",
        sentence="How much of a token's length is common to all tokens: 0 for a centred cloud, 1 when all vectors are equal.",
        formula="‖Σx‖ / Σ‖x‖",
        range=(0.0, 1.0),
        source="Biś et al. 2021 (common drift); Godey et al. 2024, arXiv:2401.12143",
        undefined="no vectors, or all of them zero",
        core=False,
        multiple=True,
        order=8,
        docs="cones.md",
    ),
    gradient=_gradient,
    bias=_bias,
)
def drift(cloud: Cloud) -> float | None:
    """Norm of the mean over the mean norm; in [0, 1], the triangle inequality. Long vectors weigh more.

    >>> drift(Cloud.of_rows([[3.0, 4.0], [3.0, 4.0]]))
    1.0
    """
    return float(np.linalg.norm(cloud.vector_sum)) / cloud.norm_sum if cloud.norm_sum > 0 else None
