"""Hubness: are some points among the nearest neighbours of very many others?"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headscan.geometry.explained import Cells
from headscan.geometry.neighbours import neighbours

__all__ = ["NEIGHBOURS", "hubness"]

NEIGHBOURS = 10


def hubness(rows: npt.ArrayLike, k: int = NEIGHBOURS) -> Cells:
    """Of N, how often each direction is among the k nearest others of all [n, d] (by angle): its skewness, the Robin Hood index
    ½Σ|N − k|/(nk), and the share of points that are nobody's neighbour.

    Radovanović et al. 2010; Feldbauer and Flexer 2019. Where neighbours are drawn at random N is binomial: skewness 1/√k, and
    e^−k are nobody's. Vectors of length zero are left out; None where no more than k + 1 are left. Cost O(n²d).

    >>> found = hubness(np.random.default_rng(0).standard_normal((400, 2)))
    >>> -0.7 < found["hub_skewness"] < 0.3, found["antihubs"]       # on a circle: as many neighbours for each
    (True, 0.0)
    """
    x = np.asarray(rows, dtype=np.float64)
    lengths = np.linalg.norm(x, axis=1)
    x = x[lengths > 0] / lengths[lengths > 0, None]
    if len(x) <= k + 1:
        return dict.fromkeys(("hub_skewness", "robin_hood", "antihubs", "largest_hub"))
    counts = np.bincount(neighbours(x, k)[1].numpy().ravel(), minlength=len(x)).astype(np.float64)
    apart = counts - k
    deviation = float(np.sqrt((apart**2).mean()))
    return {
        "hub_skewness": float((apart**3).mean()) / deviation**3 if deviation > 0 else 0.0,
        "robin_hood": float(np.abs(apart).sum()) / (2 * len(x) * k),
        "antihubs": float((counts == 0).mean()),
        "largest_hub": float(counts.max()) / k,
    }
