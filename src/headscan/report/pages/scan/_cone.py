"""The cone that an average cosine amounts to, as numbers for a drawing.

If unit vectors have the mean cosine c to one another, their mean has (for many vectors) the length √c, and that is also
their mean cosine to the mean's direction: seen from the origin they lie about the axis at the angle arccos √c.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from headscan.report.kit.words import value_of

__all__ = ["Drawing", "drawing", "half_angle"]

RADIUS = 100.0
TILT = 0.24  # height of a circle seen from the side, by its width
ARC = 34.0


@dataclass(frozen=True)
class Drawing:
    """Lengths for `pieces.html.j2`: apex at (0, 0), axis upwards, unit sphere of radius 100; `touch`: where a side ends."""

    angle: float
    height: float
    rim: float
    flat: float
    touch: tuple[float, float] | None
    arc_x: float
    arc_y: float
    arc: float = ARC
    radius: float = RADIUS
    equator: float = RADIUS * TILT


def half_angle(cosine: object) -> float | None:
    """The half-angle in degrees, from 0 (all point the same way) to 90 (no common direction); None when undefined.

    >>> round(half_angle(0.97)), round(half_angle(0.4)), half_angle(-0.01), half_angle(None)
    (10, 51, 90.0, None)
    """
    value = value_of(cosine)
    return None if value is None else math.degrees(math.acos(math.sqrt(min(max(value, 0.0), 1.0))))


def drawing(cosine: object) -> Drawing | None:
    """The drawing of a cosine; None where it is undefined."""
    angle = half_angle(cosine)
    if angle is None:
        return None
    sine, cos = math.sin(math.radians(angle)), math.cos(math.radians(angle))
    height, rim = RADIUS * cos, RADIUS * sine
    flat = TILT * rim
    # Where the silhouette touches the rim; a cone so wide that its rim surrounds the apex has no silhouette.
    touch = None
    if height > flat:
        touch = round(rim * math.sqrt(1 - (flat / height) ** 2), 2), round(-height + flat**2 / height, 2)
    return Drawing(
        angle, round(height, 2), round(rim, 2), round(flat, 2), touch, round(ARC * sine, 2), round(-ARC * cos, 2)
    )
