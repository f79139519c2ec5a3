"""The spectrum of a cloud's second moment, and the measures of dimension that it gives."""

import numpy as np

from headscan.measures.measure import measure
from headscan.run.vocabulary import Term
from headscan.statistics import Cloud, Vectors
from headscan.statistics.linearisation import Gradient, Moments
from headscan.statistics.uncertainty import Bounds, Floats


def share_gradient(moments: Moments, slope: Floats, shares: Floats) -> Floats:
    """Return ∂/∂λ of a function of the shares pᵢ = λᵢ/Σλ: (slope − p·slope)/Σλ.

    `slope` [d] is the function's derivative by pᵢ.
    """
    return (slope - float(shares @ slope)) / moments.trace


def amplitude_entropy(moments: Moments) -> tuple[float, Floats] | None:
    """Return the entropy S of p = σ/Σσ, σ = √λ, and ∂S/∂λ = (−log p − S)/(2σΣσ) [d].

    None where a σ is zero.
    """
    values = np.sqrt(np.maximum(moments.energies, 0))
    if not values.sum() > 0 or not values.min() > 0:
        return None
    shares = values / values.sum()
    logs = np.log(shares)
    slope: Floats = (-logs + float(shares @ logs)) / (2 * values * values.sum())
    return -float(shares @ logs), slope


def rank_ends(count: int, width: int) -> Bounds:
    """Return the ends of a rank: it is at most that of n vectors in d dimensions."""
    return 1.0, float(min(count, width))


def share_ends(count: int, width: int) -> Bounds:
    """Return the ends of the largest of min(n, d) shares: it is at least 1/min(n, d)."""
    return 1 / min(count, width), 1.0


def singular_values(points: Vectors) -> Floats:
    """Return σ of the uncentred data matrix divided by √n, largest first [d].

    Each is the root mean square along a direction. They are the roots of the eigenvalues of the
    second moment, so values below √`Cloud.rounding` (about 1e-8 of the largest, or of the deviation
    where the mean is far away) are rounding.

    >>> singular_values([[2, 0], [0, 1], [2, 0], [0, 1]]).round(4).tolist()
    [1.4142, 0.7071]
    """
    return np.sqrt(Cloud.of(points).energies)


def shares_of(cloud: Cloud) -> Floats | None:
    """Return pᵢ = σᵢ²/Σσ² [d], or None for a cloud of zeros."""
    total = cloud.energies.sum() if cloud.count else 0.0
    return cloud.energies / total if total > 0 else None


def varies(cloud: Cloud) -> bool:
    """Return whether vectors differ by more than rounding, which is 1e-13 of their mean."""
    return cloud.count >= 2 and cloud.variance > 1e-26 * float(cloud.mean @ cloud.mean)


def amplitudes(cloud: Cloud) -> Floats | None:
    """Return σᵢ/Σσ of the uncentred data, largest first [d].

    Values below rounding (`Cloud.rounding`) are zero.
    """
    if not cloud.count or not cloud.energies[0] > 0:
        return None
    values = np.sqrt(np.where(cloud.energies > cloud.rounding, cloud.energies, 0.0))
    shares: Floats = values / values.sum()
    return shares


def entropy_of(shares: Floats) -> float:
    """Return −Σ p log p in nats, with 0 log 0 = 0.

    >>> round(entropy_of(np.array([0.5, 0.5, 0.0])), 4)
    0.6931
    """
    positive = shares[shares > 0]
    return float(-(positive * np.log(positive)).sum())


def _effective_rank_gradient(at: Moments) -> Gradient | None:
    """Return the derivative e^S·(−log p − S)/Σλ."""
    if not at.trace > 0:
        return None
    shares = np.maximum(at.energies / at.trace, 1e-300)
    logs = np.log(shares)
    rank = float(np.exp(-(shares @ logs)))
    return Gradient(energies=rank * share_gradient(at, -logs, shares))


@measure(
    Term(
        "Effective rank",
        sentence="How many directions carry the cloud's energy (uncentred): exponential of the "
        "entropy of their shares.",
        formula="exp(−Σ pᵢ log pᵢ),  pᵢ = σᵢ²/Σσ²",
        range=(1.0, None),
        unit="dimensions",
        source="Roy and Vetterli 2007 (with energies σ² in place of σ)",
        undefined="no vectors, or all of them zero",
        column="eff.\nrank",
    ),
    group="spectra",
    spectral=True,
    cost="O(d³) after one pass of O(nd²)",
    multiple=True,
    order=5,
    docs="spectra.md",
    gradient=_effective_rank_gradient,
    ends=rank_ends,
)
def effective_rank(cloud: Cloud) -> float | None:
    """Return the entropy-based rank of the uncentred second moment; in [1, min(n, d)].

    >>> round(effective_rank(Cloud.of_rows([[1, 0], [0, 1]])), 6)
    2.0
    """
    shares = shares_of(cloud)
    return None if shares is None else float(np.exp(entropy_of(shares)))


def _participation_ratio_gradient(at: Moments) -> Gradient | None:
    """Return the derivative 2T/Q − 2T²/Q²·C by the covariance C, with T = tr C and Q = ‖C‖²."""
    trace = at.centred_trace
    square = at.centred_square
    if not trace > 0 or not square > 0:
        return None
    constant = 2 * trace / square
    factor = 2 * trace**2 / square**2
    along_mean = constant * float(at.mean @ at.mean) - factor * at.mean_energy
    return Gradient(
        energies=constant - factor * at.energies,
        outer=factor,
        along_mean=along_mean,
        centred=True,
    )


@measure(
    Term(
        "Participation ratio",
        sentence="How many directions carry the cloud's variance around its mean (centred).",
        formula="tr(C)² / ‖C‖²_F",
        range=(1.0, None),
        unit="dimensions",
        source="Gao et al. 2017, A theory of multineuronal dimensionality",
        undefined="fewer than two different vectors",
        column="part.\nratio",
    ),
    group="spectra",
    spectral=True,
    cost="O(d²) after one pass of O(nd²)",
    multiple=True,
    order=6,
    docs="spectra.md",
    gradient=_participation_ratio_gradient,
    ends=rank_ends,
)
def participation_ratio(cloud: Cloud) -> float | None:
    """Return (Σλ)²/Σλ² of the centred covariance, in [1, min(n − 1, d)].

    It is tr(C)²/‖C‖²_F, so no eigenvalues are needed.

    A covariance that is zero to rounding (all vectors equal) has no ratio: a deviation below 1e-13
    of the mean is the rounding of the vectors themselves.

    >>> round(participation_ratio(Cloud.of_rows([[1, 0], [-1, 0], [0, 1], [0, -1]])), 6)
    2.0
    """
    if not varies(cloud):
        return None
    ratio = cloud.variance**2 / cloud.squared_covariance
    return ratio if ratio > 1 + 1e-12 else 1.0  # less is rounding


def _isoscore_gradient(at: Moments) -> Gradient | None:
    """Return the derivative of the participation ratio, divided by d − 1."""
    gradient = _participation_ratio_gradient(at)
    width = len(at.mean)
    return None if gradient is None or width < 2 else gradient.times(1 / (width - 1))


@measure(
    Term(
        "IsoScore",
        sentence="Share of dimensions used evenly around the mean: 1 for a round cloud, 0 for a "
        "line (centred).",
        formula="(PR − 1) / (d − 1)",
        range=(0.0, 1.0),
        source="Rudman et al. 2022, arXiv:2108.07344; equal to its six steps, by algebra",
        undefined="fewer than two different vectors, or one dimension",
        column="iso-\nscore",
    ),
    group="spectra",
    spectral=True,
    cost="O(d²) after one pass of O(nd²)",
    multiple=True,
    order=7,
    docs="spectra.md",
    gradient=_isoscore_gradient,
)
def isoscore(cloud: Cloud) -> float | None:
    """Return IsoScore by the trace identity, exact, in [0, 1].

    Its six published steps reduce to (PR − 1)/(d − 1).

    With λ̂ = √d·λ/‖λ‖ and δ² = ‖λ̂ − 1‖²/(2(d − √d)) = (d − √d·Σλ/‖λ‖)/(d − √d), step 6's (d − δ²(d
    − √d))² is d·(Σλ)²/‖λ‖² = d·PR, and ((d·PR) − d)/(d(d − 1)) = (PR − 1)/(d − 1). No principal
    components are needed.

    >>> isoscore(Cloud.of_rows([[1.0], [2.0]])) is None
    True
    """
    ratio = participation_ratio(cloud)
    return None if ratio is None or cloud.width < 2 else (ratio - 1) / (cloud.width - 1)
