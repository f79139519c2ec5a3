"""The spectrum of a cloud's second moment: what several measures of dimension share."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headscan.statistics import Cloud, Vectors

__all__ = ["amplitudes", "entropy_of", "shares_of", "singular_values"]


def singular_values(points: Vectors) -> npt.NDArray[np.float64]:
    """σ of the uncentred data matrix divided by √n, largest first [d]: the root mean square along each direction.

    They are the roots of the eigenvalues of the second moment, so values below √`Cloud.rounding` (about 1e-8 of the
    largest, or of the deviation where the mean is far away) are rounding.

    >>> singular_values([[2, 0], [0, 1], [2, 0], [0, 1]]).round(4).tolist()
    [1.4142, 0.7071]
    """
    return np.sqrt(Cloud.of(points).energies)


def shares_of(cloud: Cloud) -> npt.NDArray[np.float64] | None:
    """pᵢ = σᵢ²/Σσ² [d], or None for a cloud of zeros."""
    total = cloud.energies.sum() if cloud.count else 0.0
    return cloud.energies / total if total > 0 else None


def amplitudes(cloud: Cloud) -> npt.NDArray[np.float64] | None:
    """σᵢ/Σσ of the uncentred data, largest first [d]; what is below rounding (`Cloud.rounding`) is zero."""
    if not cloud.count or not cloud.energies[0] > 0:
        return None
    energies = np.where(cloud.energies > cloud.rounding, cloud.energies, 0.0)
    values = np.sqrt(energies)
    shares: npt.NDArray[np.float64] = values / values.sum()
    return shares


def entropy_of(shares: npt.NDArray[np.float64]) -> float:
    """−Σ p log p in nats, with 0 log 0 = 0.

    >>> round(entropy_of(np.array([0.5, 0.5, 0.0])), 4)
    0.6931
    """
    positive = shares[shares > 0]
    return float(-(positive * np.log(positive)).sum())
