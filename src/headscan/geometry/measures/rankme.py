"""RankMe: Effective rank with amplitudes σ in place of energies σ²."""

from __future__ import annotations

import math

import numpy as np

from headscan.geometry.explained import MeasureWords
from headscan.geometry.measure import measure
from headscan.geometry.moments import Gradient, Moments, amplitude_entropy, entropy_bias
from headscan.geometry.noise import Noise
from headscan.geometry.spectrum import amplitudes, entropy_of
from headscan.statistics import Cloud

__all__ = ["rankme"]


def _gradient(at: Moments) -> Gradient | None:
    """That of the entropy S, times e^S."""
    found = amplitude_entropy(at)
    return None if found is None else Gradient(energies=float(np.exp(found[0])) * found[1])


def _bias(cloud: Cloud, noise: Noise) -> float | None:
    """As of Gaussian tokens; see `entropy_bias`."""
    value = rankme(cloud)
    return (
        None
        if value is None or not noise.tokens
        else -value * float(np.expm1(-entropy_bias(cloud.energies, noise.tokens, 0.5)))
    )


@measure(
    MeasureWords(
        title="RankMe",
        group="spectra",
        sentence="Effective rank with amplitudes σ in place of energies σ²: weak directions count more (uncentred).",
        formula="exp(−Σ pᵢ log pᵢ),  pᵢ = σᵢ/Σσ",
        range=(1.0, None),
        unit="dimensions",
        source="Garrido et al. 2023, arXiv:2210.02885; Roy and Vetterli 2007",
        undefined="no vectors, or all of them zero",
        cost="O(d³) after one pass of O(nd²)",
        spectral=True,
        core=False,
        multiple=True,
        order=12,
        docs="spectra.md",
    ),
    gradient=_gradient,
    bias=_bias,
)
def rankme(cloud: Cloud) -> float | None:
    """exp of the entropy of σ/Σσ; in [1, min(n, d)]. The published +1e-7 inside the logarithm is left out (0 log 0 = 0).

    >>> round(rankme(Cloud.of_rows([[4.0, 0.0], [0.0, 1.0]])), 4)
    1.6494
    """
    shares = amplitudes(cloud)
    return None if shares is None else math.exp(entropy_of(shares))
