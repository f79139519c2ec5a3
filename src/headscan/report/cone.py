"""The cone that an average cosine amounts to, as numbers for a drawing.

If unit vectors have the mean cosine c to one another, their mean has (for many vectors) the length √c, and that is also
their mean cosine to the mean's direction: seen from the origin they lie about the axis at the angle arccos √c.
"""

from __future__ import annotations

import math

from headscan.report.words import value_of

__all__ = ["drawing", "half_angle"]

RADIUS = 100.0
TILT = 0.24  # height of a circle seen from the side, by its width


def half_angle(cosine: object) -> float | None:
    """The half-angle in degrees, from 0 (all point the same way) to 90 (no common direction); None when undefined.

    >>> round(half_angle(0.97)), round(half_angle(0.4)), half_angle(-0.01), half_angle(None)
    (10, 51, 90.0, None)
    """
    value = value_of(cosine)
    return None if value is None else math.degrees(math.acos(math.sqrt(min(max(value, 0.0), 1.0))))


def drawing(cosine: object) -> dict | None:
    """The drawing's lengths for `templates/parts.html.j2`: apex at (0, 0), axis upwards, unit sphere of radius 100."""
    angle = half_angle(cosine)
    if angle is None:
        return None
    height, rim = RADIUS * math.cos(math.radians(angle)), RADIUS * math.sin(math.radians(angle))
    flat = TILT * rim
    # Where the silhouette touches the rim; a cone so wide that its rim surrounds the apex has no silhouette.
    touch = None
    if height > flat:
        touch = {"x": round(rim * math.sqrt(1 - (flat / height) ** 2), 2), "y": round(-height + flat**2 / height, 2)}
    arc = 34.0
    return {
        "angle": angle, "height": round(height, 2), "rim": round(rim, 2), "flat": round(flat, 2), "touch": touch,
        "radius": RADIUS, "equator": RADIUS * TILT, "arc": arc,
        "arc_x": round(arc * math.sin(math.radians(angle)), 2), "arc_y": round(-arc * math.cos(math.radians(angle)), 2),
    }  # fmt: skip
