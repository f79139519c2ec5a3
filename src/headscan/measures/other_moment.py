"""Effective rank and participation ratio, each of the moment that the literature does not use.

The literature takes effective rank (Roy and Vetterli 2007) of the uncentred second moment, and the
participation ratio (Gao et al. 2017) of the centred covariance.
"""

import numpy as np

from headscan.measures.measure import measure
from headscan.measures.spectrum import entropy_of, rank_ends, share_gradient, shares_of, varies
from headscan.run.vocabulary import Term
from headscan.statistics import Cloud
from headscan.statistics.linearisation import Gradient, Moments


@measure(
    Term(
        "Effective rank, centred",
        sentence="Effective rank of the covariance: how many directions carry the variance around "
        "the mean (the literature's effective rank is uncentred).",
        formula="exp(−Σ pᵢ log pᵢ),  pᵢ = λᵢ/Σλ of the covariance",
        range=(1.0, None),
        unit="dimensions",
        source="Roy and Vetterli 2007, of the covariance in place of the second moment",
        undefined="fewer than two different vectors",
        interval="its derivative needs the covariance's own eigenvectors",
    ),
    group="spectra",
    core=False,
    spectral=True,
    cost="O(d³) after one pass of O(nd²)",
    multiple=True,
    order=13,
    docs="spectra.md",
    ends=rank_ends,
)
def centred_effective_rank(cloud: Cloud) -> float | None:
    """Return the entropy-based rank of the centred covariance; in [1, min(n − 1, d)].

    >>> round(centred_effective_rank(Cloud.of_rows([[9, 1], [9, -1], [10, 0], [8, 0]])), 6)
    2.0
    """
    if not varies(cloud):
        return None
    energies = np.linalg.eigvalsh(cloud.covariance).clip(0.0)
    return float(np.exp(entropy_of(energies / energies.sum())))


def _uncentred_gradient(at: Moments) -> Gradient | None:
    """Return the derivative 2p/(Σp²)² by the shares p, negative."""
    if not at.trace > 0:
        return None
    shares = at.energies / at.trace
    slope = -2 * shares / float(shares @ shares) ** 2
    return Gradient(energies=share_gradient(at, slope, shares))


@measure(
    Term(
        "Participation ratio, uncentred",
        sentence="Participation ratio of the second moment: how many directions carry the energy "
        "(the literature's participation ratio is centred).",
        formula="1/Σpᵢ²,  pᵢ = σᵢ²/Σσ²",
        range=(1.0, None),
        unit="dimensions",
        source="Gao et al. 2017, of the second moment in place of the covariance",
        undefined="no vectors, or all of them zero",
    ),
    group="spectra",
    core=False,
    spectral=True,
    cost="O(d³) after one pass of O(nd²)",
    multiple=True,
    order=14,
    docs="spectra.md",
    gradient=_uncentred_gradient,
    ends=rank_ends,
)
def uncentred_participation_ratio(cloud: Cloud) -> float | None:
    """Return 1/Σp² with the shares p of the second moment's energy, in [1, min(n, d)].

    >>> round(uncentred_participation_ratio(Cloud.of_rows([[1, 0], [0, 1]])), 6)
    2.0
    """
    shares = shares_of(cloud)
    return None if shares is None else 1 / float(shares @ shares)
