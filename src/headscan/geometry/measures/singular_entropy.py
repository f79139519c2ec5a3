"""Singular entropy: How far the singular values are from all being equal, in nats."""

from __future__ import annotations

import math

from headscan.geometry.explained import MeasureWords
from headscan.geometry.measure import measure
from headscan.geometry.moments import Gradient, Moments, amplitude_entropy, entropy_bias
from headscan.geometry.noise import Noise
from headscan.geometry.spectrum import amplitudes, entropy_of
from headscan.statistics import Cloud

__all__ = ["singular_entropy"]


def _gradient(at: Moments) -> Gradient | None:
    """That of the entropy, with the other sign."""
    found = amplitude_entropy(at)
    return None if found is None else Gradient(energies=-found[1])


def _bias(cloud: Cloud, noise: Noise) -> float | None:
    """As of Gaussian tokens; see `entropy_bias`."""
    value = singular_entropy(cloud)
    return None if value is None or not noise.tokens else -entropy_bias(cloud.energies, noise.tokens, 0.5)


@measure(
    MeasureWords(
        title="Singular entropy",
        group="spectra",
        sentence="How far the singular values are from all being equal, in nats: 0 for a ball, log d for a needle (uncentred).",
        formula="log d − H(σ/Σσ)",
        range=(0.0, None),
        unit="nats",
        source="Godey et al. 2024, arXiv:2404.07647 (of the head; here of any cloud)",
        undefined="no vectors, or all of them zero",
        cost="O(d³) after one pass of O(nd²)",
        spectral=True,
        core=False,
        multiple=True,
        order=11,
        docs="spectra.md",
    ),
    gradient=_gradient,
    bias=_bias,
)
def singular_entropy(cloud: Cloud) -> float | None:
    """Kullback-Leibler divergence of the normalised singular values from uniform; in [0, log d].

    >>> round(singular_entropy(Cloud.of_rows([[1.0, 0.0], [0.0, 1.0]])), 6)
    0.0
    """
    shares = amplitudes(cloud)
    return None if shares is None else max(0.0, math.log(cloud.width) - entropy_of(shares))
