"""Cone angle: The angle at the origin between the cone's axis and a typical token."""

from __future__ import annotations

import math

import numpy as np

from headscan.geometry.explained import MeasureWords
from headscan.geometry.measure import measure
from headscan.geometry.moments import Gradient, Moments
from headscan.geometry.noise import Noise, length_bias
from headscan.statistics import Cloud

__all__ = ["cone_angle"]


def _gradient(at: Moments) -> Gradient | None:
    """−m/(‖m‖(1 − z) sin) in degrees."""
    length, rest = float(np.linalg.norm(at.unit)), 1 - at.zeros
    if rest <= 0 or not 0 < length < rest:
        return None
    slope = -math.degrees(1 / (rest * math.sqrt(1 - (length / rest) ** 2)))
    return Gradient(unit=slope * at.unit / length, zeros=slope * length / rest)


def _bias(cloud: Cloud, noise: Noise) -> float | None:
    """The length of the mean direction is too long by what is noise in it."""
    angle = cone_angle(cloud)
    if angle is None:
        return None
    length = math.cos(math.radians(angle))
    along = math.radians(noise.error) * math.sin(math.radians(angle))
    return angle - math.degrees(math.acos(length - length_bias(length, noise.unit, along)))


@measure(
    MeasureWords(
        title="Cone angle",
        group="cones",
        sentence="The angle at the origin between the cone's axis and a typical token: 0° for a needle, 90° for a ball.",
        formula="arccos(‖Σû‖ / n)",
        range=(0.0, 90.0),
        unit="degrees",
        source="mean resultant length of directional statistics (Mardia and Jupp 2000)",
        undefined="no vector that is not zero",
        core=False,
        multiple=True,
        order=9,
        docs="cones.md",
    ),
    gradient=_gradient,
    bias=_bias,
)
def cone_angle(cloud: Cloud) -> float | None:
    """The angle whose cosine is the mean cosine of the vectors to the cone's axis; in [0, 90] degrees.

    Σû·a/n = ‖Σû‖/n for the axis a = Σû/‖Σû‖. A ball of n vectors has ‖Σû‖/n ≈ 1/√n: at n = 100 it looks like 84°.

    >>> round(cone_angle(Cloud.of_rows([[1.0, 0.0], [0.0, 1.0]])), 6)
    45.0
    """
    directions = cloud.count - cloud.zeros
    if directions < 1:
        return None
    return math.degrees(math.acos(min(1.0, float(np.linalg.norm(cloud.unit_sum)) / directions)))
