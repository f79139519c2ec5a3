"""Top-direction share: The share of the cloud's energy along its one strongest direction (uncentred)."""

from __future__ import annotations

import numpy as np

from headscan.geometry.explained import MeasureWords
from headscan.geometry.measure import measure
from headscan.geometry.moments import Gradient, Moments, share_gradient, top_bias
from headscan.geometry.noise import Noise
from headscan.geometry.spectrum import shares_of
from headscan.statistics import Cloud

__all__ = ["top_direction_share"]


def _gradient(at: Moments) -> Gradient | None:
    """(v₁v₁ᵀ − share)/Σλ."""
    if not at.trace > 0:
        return None
    first = np.zeros(len(at.energies))
    first[0] = 1.0
    return Gradient(energies=share_gradient(at, first, at.energies / at.trace))


def _bias(cloud: Cloud, noise: Noise) -> float | None:
    """As of Gaussian tokens; see `top_bias`."""
    return top_bias(cloud.energies, noise.tokens) if noise.tokens and cloud.energies[0] > 0 else None


@measure(
    MeasureWords(
        title="Top-direction share",
        group="spectra",
        sentence="The share of the cloud's energy along its one strongest direction (uncentred).",
        formula="σ₁² / Σσ²",
        range=(0.0, 1.0),
        source="Ethayarajh 2019, arXiv:1909.00512 (maximum explainable variance, uncentred)",
        undefined="no vectors, or all of them zero",
        cost="O(d³) after one pass of O(nd²)",
        spectral=True,
        column="top\nshare",
        multiple=True,
        order=4,
        docs="spectra.md",
    ),
    gradient=_gradient,
    bias=_bias,
)
def top_direction_share(cloud: Cloud) -> float | None:
    """Share of Σ‖x‖² along the first singular direction; in [1/d, 1]. Uncentred, so a cone's axis counts.

    >>> round(top_direction_share(Cloud.of_rows([[2, 0], [0, 1]])), 6)
    0.8
    """
    shares = shares_of(cloud)
    return None if shares is None else float(shares[0])
