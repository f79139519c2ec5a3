"""The principal components of a cloud, as remedies use them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headscan.statistics import Cloud

__all__ = ["ROUNDING", "components", "deviations", "inverse_root"]

Floats = npt.NDArray[np.float64]
ROUNDING = 1e-10
"""Variances up to this share of the largest are taken for rounding."""


def components(cloud: Cloud) -> tuple[Floats, Floats]:
    """The covariance's eigenvalues, largest first [d], and its eigenvectors as columns [d, d]; those that are rounding
    (and of n vectors all but n − 1) are left out."""
    values, vectors = np.linalg.eigh(cloud.covariance)
    values, vectors = np.clip(values[::-1], 0, None), vectors[:, ::-1]
    kept = int((values > ROUNDING * values[0]).sum())
    return values[:kept], vectors[:, :kept]


def deviations(cloud: Cloud) -> Floats:
    """The standard deviation of each coordinate [d]; 0 where it is rounding."""
    found = np.sqrt(np.clip(np.diag(cloud.covariance), 0, None))
    return np.where(found <= ROUNDING * found.max(initial=0.0), 0.0, found)


def inverse_root(matrix: Floats) -> Floats:
    """The inverse square root of a symmetric matrix [d, d], of its part that is no rounding."""
    values, vectors = np.linalg.eigh(matrix)
    kept = values > ROUNDING * max(values[-1], 0.0)
    root: Floats = (vectors[:, kept] / np.sqrt(values[kept])) @ vectors[:, kept].T
    return root
