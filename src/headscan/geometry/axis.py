"""Where does the cone point, and does it keep its place from layer to layer?"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from headscan.geometry.explained import Cells
from headscan.geometry.interval import left_out
from headscan.statistics import Cloud, SiteStatistics

__all__ = ["axis", "axis_cosine", "axis_course"]


def axis(cloud: Cloud) -> npt.NDArray[np.float64] | None:
    """The cone's axis, Σû/‖Σû‖ [d]: the direction of the smallest mean squared distance on the sphere.

    None where the directions cancel to rounding (‖Σû‖ < 1e-12·n) or there are none.

    >>> axis(Cloud.of_rows([[2.0, 0.0], [0.0, 1.0]])).round(4).tolist()
    [0.7071, 0.7071]
    """
    directions = cloud.count - cloud.zeros
    length = float(np.linalg.norm(cloud.unit_sum))
    return cloud.unit_sum / length if length > 1e-12 * directions and directions else None


def axis_cosine(one: Cloud, other: Cloud) -> float | None:
    """Cosine between the axes of two clouds of one width: does the cone keep its place from layer to layer? [−1, 1].

    None where a cloud has no axis or the widths differ. Between two balls it is of size 1/√d.

    >>> axis_cosine(Cloud.of_rows([[1.0, 1.0]]), Cloud.of_rows([[2.0, 0.0]])).__round__(4)
    0.7071
    """
    if one.width != other.width:
        return None
    first, second = axis(one), axis(other)
    return None if first is None or second is None else float(np.clip(first @ second, -1.0, 1.0))


def axis_course(sites: Sequence[SiteStatistics], *, rest: bool = False) -> list[Cells]:
    """Each site's axis against the one before, the first and the last: `to_previous`, `to_first`, `to_last`.

    Each with its 95 % interval over the sites' fine blocks of text; `rest`: without position 0 of each window. Values as
    of `axis_cosine`. Cost O(sites·blocks·d).
    """
    sums, counts = [], []
    for statistics in sites:
        first = dict(statistics.fine["first"].items()) if rest else {}
        parts = [part.without(first[k]) if k in first else part for k, part in statistics.fine["all"].items()]
        units = np.stack([part.unit.cpu().numpy() for part in parts]) if parts else np.zeros((0, statistics.width))
        sizes = np.array([part.count - part.zeros for part in parts], dtype=float)
        whole = np.vstack([units.sum(0, keepdims=True), units.sum(0) - units])  # all, then without each block
        lengths = np.linalg.norm(whole, axis=1)
        least = 1e-12 * np.concatenate([[sizes.sum()], sizes.sum() - sizes])
        sums.append(np.where((lengths > least)[:, None], whole / np.maximum(lengths, 1e-300)[:, None], np.nan))
        counts.append(sizes)
    rows = []
    for k, mine in enumerate(sums):
        row: Cells = {}
        for name, other in (("to_previous", k - 1), ("to_first", 0), ("to_last", len(sums) - 1)):
            known = other >= 0 and sums[other].shape == mine.shape
            cosines = np.clip((mine * sums[other]).sum(1), -1.0, 1.0) if known else np.full(len(mine), np.nan)
            values = [None if math.isnan(value) else float(value) for value in cosines]
            row[name] = values[0]
            row[f"{name}_interval"] = left_out(values[0], values[1:], counts[k], bounds=(-1.0, 1.0))
        rows.append(row)
    return rows
