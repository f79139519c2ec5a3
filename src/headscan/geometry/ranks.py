"""Other answers to 'how many dimensions': stable rank, singular entropy, RankMe."""

from __future__ import annotations

import math

import numpy as np

from headscan.geometry.measure import measure
from headscan.statistics import Cloud

__all__ = ["entropy_of", "rankme", "singular_entropy", "stable_rank"]

EIGH = "O(d³) after one pass of O(nd²)"
UNDEFINED = "no vectors, or all of them zero"


def amplitudes(cloud: Cloud) -> np.ndarray | None:
    """σᵢ/Σσ of the uncentred data, largest first [d]; what is below rounding, √(d·ε)·σ₁, is zero."""
    if not cloud.count or not cloud.energies[0] > 0:
        return None
    energies = np.where(cloud.energies > 4 * cloud.width * np.finfo(float).eps * cloud.energies[0], cloud.energies, 0.0)
    values = np.sqrt(energies)
    return values / values.sum()


def entropy_of(shares: np.ndarray) -> float:
    """−Σ p log p in nats, with 0 log 0 = 0.

    >>> round(entropy_of(np.array([0.5, 0.5, 0.0])), 4)
    0.6931
    """
    positive = shares[shares > 0]
    return float(-(positive * np.log(positive)).sum())


@measure(
    title="Stable rank",
    group="spectra",
    sentence="The cloud's whole energy in units of its strongest direction (uncentred); 1 for a needle.",
    formula="‖X‖²_F / σ₁²",
    range=(1.0, None),
    unit="dimensions",
    source="Rudelson and Vershynin 2007, arXiv:math/0503442",
    undefined=UNDEFINED,
    cost=EIGH,
    spectral=True,
    core=False,
)
def stable_rank(cloud: Cloud) -> float | None:
    """Σσ²/σ₁², the reciprocal of the top-direction share; in [1, min(n, d)]. Moves little under small changes.

    >>> stable_rank(Cloud.of_rows([[2.0, 0.0], [0.0, 2.0], [2.0, 0.0], [0.0, 2.0]]))
    2.0
    """
    return float(cloud.energies.sum() / cloud.energies[0]) if cloud.count and cloud.energies[0] > 0 else None


@measure(
    title="Singular entropy",
    group="spectra",
    sentence="How far the singular values are from all being equal, in nats: 0 for a ball, log d for a needle (uncentred).",
    formula="log d − H(σ/Σσ)",
    range=(0.0, None),
    unit="nats",
    source="Godey et al. 2024, arXiv:2404.07647 (of the head; here of any cloud)",
    undefined=UNDEFINED,
    cost=EIGH,
    spectral=True,
    core=False,
)
def singular_entropy(cloud: Cloud) -> float | None:
    """Kullback-Leibler divergence of the normalised singular values from uniform; in [0, log d].

    >>> round(singular_entropy(Cloud.of_rows([[1.0, 0.0], [0.0, 1.0]])), 6)
    0.0
    """
    shares = amplitudes(cloud)
    return None if shares is None else max(0.0, math.log(cloud.width) - entropy_of(shares))


@measure(
    title="RankMe",
    group="spectra",
    sentence="Effective rank with amplitudes σ in place of energies σ²: weak directions count more (uncentred).",
    formula="exp(−Σ pᵢ log pᵢ),  pᵢ = σᵢ/Σσ",
    range=(1.0, None),
    unit="dimensions",
    source="Garrido et al. 2023, arXiv:2210.02885; Roy and Vetterli 2007",
    undefined=UNDEFINED,
    cost=EIGH,
    spectral=True,
    core=False,
)
def rankme(cloud: Cloud) -> float | None:
    """exp of the entropy of σ/Σσ; in [1, min(n, d)]. The published +1e-7 inside the logarithm is left out (0 log 0 = 0).

    >>> round(rankme(Cloud.of_rows([[4.0, 0.0], [0.0, 1.0]])), 4)
    1.6494
    """
    shares = amplitudes(cloud)
    return None if shares is None else math.exp(entropy_of(shares))
