"""Stable rank: The cloud's whole energy in units of its strongest direction (uncentred)."""

from __future__ import annotations

import numpy as np

from headscan.geometry.explained import MeasureWords
from headscan.geometry.measure import measure
from headscan.geometry.moments import Gradient, Moments, top_bias
from headscan.geometry.noise import Noise
from headscan.statistics import Cloud

__all__ = ["stable_rank"]


def _gradient(at: Moments) -> Gradient | None:
    """(1 − rank·v₁v₁ᵀ)/λ₁."""
    if not at.trace > 0:
        return None
    slope = np.full(len(at.energies), 1 / at.energies[0])
    slope[0] -= at.trace / at.energies[0] ** 2
    return Gradient(energies=slope)


def _bias(cloud: Cloud, noise: Noise) -> float | None:
    """Of 1/p, p the top-direction share: −bias(p)/p² and, to second order, Var(p)/p³."""
    value = stable_rank(cloud)
    if value is None or not noise.tokens:
        return None
    return -top_bias(cloud.energies, noise.tokens) * value**2 + noise.error**2 / value


@measure(
    MeasureWords(
        title="Stable rank",
        group="spectra",
        sentence="The cloud's whole energy in units of its strongest direction (uncentred); 1 for a needle.",
        formula="‖X‖²_F / σ₁²",
        range=(1.0, None),
        unit="dimensions",
        source="Rudelson and Vershynin 2007, arXiv:math/0503442",
        undefined="no vectors, or all of them zero",
        cost="O(d³) after one pass of O(nd²)",
        spectral=True,
        core=False,
        multiple=True,
        order=10,
        docs="spectra.md",
    ),
    gradient=_gradient,
    bias=_bias,
)
def stable_rank(cloud: Cloud) -> float | None:
    """Σσ²/σ₁², the reciprocal of the top-direction share; in [1, min(n, d)]. Moves little under small changes.

    >>> stable_rank(Cloud.of_rows([[2.0, 0.0], [0.0, 2.0], [2.0, 0.0], [0.0, 2.0]]))
    2.0
    """
    return float(cloud.energies.sum() / cloud.energies[0]) if cloud.count and cloud.energies[0] > 0 else None
