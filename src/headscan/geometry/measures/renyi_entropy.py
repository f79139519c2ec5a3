"""Matrix Rényi entropy: How many directions carry the energy, on a scale that chooses how much the weak ones count."""

from __future__ import annotations

import math

import numpy as np

from headscan.geometry.explained import MeasureWords
from headscan.geometry.measure import measure
from headscan.geometry.moments import Gradient, Moments, share_gradient
from headscan.geometry.noise import Noise
from headscan.geometry.spectrum import entropy_of, shares_of
from headscan.run import BadInput
from headscan.statistics import Cloud, Vectors

__all__ = ["matrix_entropy", "renyi_entropy"]


def matrix_entropy(points: Vectors, order: float) -> float | None:
    """S_α = log(Σpᵢ^α)/(1 − α) of the eigenvalues' shares pᵢ, in nats, of any order α ≥ 0; order 1 is Shannon's.

    In [0, log d]; it falls with the order. 0 counts directions, ∞ is −log of the largest share. Raises BadInput for an
    order below 0 or NaN. Source: Giraldo et al. 2015 (arXiv:1211.2459), Skean et al. 2025 (arXiv:2502.02013).

    >>> [round(matrix_entropy(np.diag([3.0, 1.0]), order), 3) for order in (0, 1, 2, math.inf)]
    [0.693, 0.325, 0.198, 0.105]
    """
    if not order >= 0:
        raise BadInput(f"The order of an entropy is 0 or more, not {order}.")
    cloud = Cloud.of(points)
    shares = shares_of(cloud)
    if shares is None:
        return None
    shares = shares[cloud.energies > cloud.rounding]
    if order == 1:
        return entropy_of(shares)
    if math.isinf(order):
        return -math.log(float(shares.max()))
    return max(0.0, math.log(float((shares**order).sum())) / (1 - order))


def _gradient(at: Moments) -> Gradient | None:
    """−2p/Σp² by the shares."""
    if not at.trace > 0:
        return None
    shares = at.energies / at.trace
    return Gradient(energies=share_gradient(at, -2 * shares / float(shares @ shares), shares))


def _bias(cloud: Cloud, noise: Noise) -> float | None:
    """As of Gaussian tokens, of which E‖M̂‖² = ‖M‖² + (‖M‖² + (tr M)²)/n: the noise is taken from ‖M̂‖², at most half of it.
    A mean of logarithms lies half of their variance below the logarithm of the mean."""
    value = renyi_entropy(cloud)
    if value is None or not noise.tokens:
        return None
    return math.log1p(-min(0.5, (math.exp(value) + 1) / noise.tokens)) + noise.error**2 / 2


@measure(
    MeasureWords(
        title="Rényi entropy of order 2",
        group="spectra",
        sentence="The entropy of the energies' shares that counts the strong directions most: log d for a ball, 0 for a needle "
        "(uncentred).",
        formula="−log Σ(λᵢ/Σλ)²",
        range=(0.0, None),
        unit="nats",
        source="Giraldo et al. 2015, arXiv:1211.2459; Skean et al. 2025, arXiv:2502.02013",
        undefined="no vectors, or all of them zero",
        cost="O(d³) after one pass of O(nd²)",
        spectral=True,
        core=False,
        multiple=True,
        order=14,
        docs="spectra.md",
    ),
    reference=lambda rows: (
        float(-np.log(np.square((s := np.linalg.svd(rows)[1] ** 2) / s.sum()).sum())) if rows.any() else None
    ),
    gradient=_gradient,
    bias=_bias,
)
def renyi_entropy(cloud: Cloud) -> float | None:
    """`matrix_entropy` of order 2; other orders in Python: `headscan.geometry.measures.renyi_entropy.matrix_entropy`.

    >>> round(renyi_entropy(np.eye(4)), 4) == round(math.log(4), 4)
    True
    """
    return matrix_entropy(cloud, 2.0)
