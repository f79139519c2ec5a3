"""Effective rank: How many directions carry the cloud's energy (uncentred)."""

from __future__ import annotations

import numpy as np

from headscan.geometry.explained import MeasureWords
from headscan.geometry.measure import measure
from headscan.geometry.moments import Gradient, Moments, entropy_bias, share_gradient
from headscan.geometry.noise import Noise
from headscan.geometry.spectrum import shares_of
from headscan.statistics import Cloud

__all__ = ["effective_rank"]


def _gradient(at: Moments) -> Gradient | None:
    """e^S·(−log p − S)/Σλ."""
    if not at.trace > 0:
        return None
    shares = np.maximum(at.energies / at.trace, 1e-300)
    logs = np.log(shares)
    rank = float(np.exp(-(shares @ logs)))
    return Gradient(energies=rank * share_gradient(at, -logs, shares))


def _bias(cloud: Cloud, noise: Noise) -> float | None:
    """By that of the entropy, to second order; for Gaussian tokens."""
    value = effective_rank(cloud)
    return (
        None
        if value is None or not noise.tokens
        else -value * float(np.expm1(-entropy_bias(cloud.energies, noise.tokens)))
    )


@measure(
    MeasureWords(
        title="Effective rank",
        group="spectra",
        sentence="How many directions carry the cloud's energy (uncentred): exponential of the entropy of their shares.",
        formula="exp(−Σ pᵢ log pᵢ),  pᵢ = σᵢ²/Σσ²",
        range=(1.0, None),
        unit="dimensions",
        source="Roy and Vetterli 2007 (with energies σ² in place of σ)",
        undefined="no vectors, or all of them zero",
        cost="O(d³) after one pass of O(nd²)",
        spectral=True,
        column="eff.\nrank",
        multiple=True,
        order=5,
        docs="spectra.md",
    ),
    gradient=_gradient,
    bias=_bias,
)
def effective_rank(cloud: Cloud) -> float | None:
    """Entropy-based rank of the uncentred second moment; in [1, min(n, d)].

    >>> round(effective_rank(Cloud.of_rows([[1, 0], [0, 1]])), 6)
    2.0
    """
    shares = shares_of(cloud)
    if shares is None:
        return None
    positive = shares[shares > 0]
    return float(np.exp(-(positive * np.log(positive)).sum()))
