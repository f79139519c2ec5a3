"""How many dimensions does a cloud fill? Measures of the spectrum of its second moment or covariance."""

from __future__ import annotations

import numpy as np
from scipy.linalg import blas

from headscan.geometry.measure import measure
from headscan.statistics import Cloud

__all__ = [
    "effective_rank",
    "isoscore",
    "isoscore_of_rows",
    "participation_ratio",
    "singular_values",
    "top_direction_share",
]

EIGH = "O(d³) after one pass of O(nd²)"


def singular_values(cloud: Cloud) -> np.ndarray:
    """σ of the uncentred data matrix divided by √n, largest first [d]: the root mean square along each direction.

    They are the roots of the eigenvalues of the second moment, so values below about 1e-8·σ₁ are rounding (√ε).

    >>> singular_values(Cloud.of_rows([[2, 0], [0, 1], [2, 0], [0, 1]])).round(4).tolist()
    [1.4142, 0.7071]
    """
    return np.sqrt(cloud.energies)


def _shares(cloud: Cloud) -> np.ndarray | None:
    """pᵢ = σᵢ²/Σσ², or None for a cloud of zeros."""
    total = cloud.energies.sum() if cloud.count else 0.0
    return cloud.energies / total if total > 0 else None


@measure(
    title="Top-direction share",
    group="spectra",
    sentence="The share of the cloud's energy along its one strongest direction (uncentred).",
    formula="σ₁² / Σσ²",
    range=(0.0, 1.0),
    source="Ethayarajh 2019, arXiv:1909.00512 (maximum explainable variance, uncentred)",
    undefined="no vectors, or all of them zero",
    cost=EIGH,
    spectral=True,
)
def top_direction_share(cloud: Cloud) -> float | None:
    """Share of Σ‖x‖² along the first singular direction; in [1/d, 1]. Uncentred, so a cone's axis counts.

    >>> round(top_direction_share(Cloud.of_rows([[2, 0], [0, 1]])), 6)
    0.8
    """
    shares = _shares(cloud)
    return None if shares is None else float(shares[0])


@measure(
    title="Effective rank",
    group="spectra",
    sentence="How many directions carry the cloud's energy (uncentred): exponential of the entropy of their shares.",
    formula="exp(−Σ pᵢ log pᵢ),  pᵢ = σᵢ²/Σσ²",
    range=(1.0, None),
    unit="dimensions",
    source="Roy and Vetterli 2007 (with energies σ² in place of σ)",
    undefined="no vectors, or all of them zero",
    cost=EIGH,
    spectral=True,
)
def effective_rank(cloud: Cloud) -> float | None:
    """Entropy-based rank of the uncentred second moment; in [1, min(n, d)].

    >>> round(effective_rank(Cloud.of_rows([[1, 0], [0, 1]])), 6)
    2.0
    """
    shares = _shares(cloud)
    if shares is None:
        return None
    positive = shares[shares > 0]
    return float(np.exp(-(positive * np.log(positive)).sum()))


@measure(
    title="Participation ratio",
    group="spectra",
    sentence="How many directions carry the cloud's variance around its mean (centred).",
    formula="tr(C)² / ‖C‖²_F",
    range=(1.0, None),
    unit="dimensions",
    source="Gao et al. 2017, A theory of multineuronal dimensionality",
    undefined="fewer than two different vectors",
    cost="O(d²) after one pass of O(nd²)",
    spectral=True,
)
def participation_ratio(cloud: Cloud) -> float | None:
    """(Σλ)²/Σλ² of the centred covariance, without its eigenvalues: tr(C)²/‖C‖²_F; in [1, min(n − 1, d)].

    A covariance that is zero to rounding (all vectors equal) has no ratio: below 1e-12 of the second moment, the
    subtraction of the mean leaves only rounding.

    >>> round(participation_ratio(Cloud.of_rows([[1, 0], [-1, 0], [0, 1], [0, -1]])), 6)
    2.0
    """
    if cloud.count < 2:
        return None
    trace = float(np.trace(cloud.covariance))
    if not trace > 1e-12 * float(np.trace(cloud.second_moment)):
        return None
    return trace**2 / float((cloud.covariance**2).sum())


@measure(
    title="IsoScore",
    group="spectra",
    sentence="Share of dimensions used evenly around the mean: 1 for a round cloud, 0 for a line (centred).",
    formula="(PR − 1) / (d − 1)",
    range=(0.0, 1.0),
    source="Rudman et al. 2022, arXiv:2108.07344; equal to its six steps, by algebra",
    undefined="fewer than two different vectors, or one dimension",
    cost="O(d²) after one pass of O(nd²)",
    spectral=True,
)
def isoscore(cloud: Cloud) -> float | None:
    """IsoScore by the trace identity, exact: its six published steps reduce to (PR − 1)/(d − 1); in [0, 1].

    With λ̂ = √d·λ/‖λ‖ and δ² = ‖λ̂ − 1‖²/(2(d − √d)) = (d − √d·Σλ/‖λ‖)/(d − √d), step 6's (d − δ²(d − √d))² is
    d·(Σλ)²/‖λ‖² = d·PR, and ((d·PR) − d)/(d(d − 1)) = (PR − 1)/(d − 1). No principal components are needed.

    >>> isoscore(Cloud.of_rows([[1.0], [2.0]])) is None
    True
    """
    ratio = participation_ratio(cloud)
    return None if ratio is None or cloud.width < 2 else (ratio - 1) / (cloud.width - 1)


def isoscore_of_rows(rows, *, double: bool = False) -> float | None:
    """IsoScore of a matrix [n, d] by itself, fast: to 1e-6 in float32's arithmetic, or to rounding with `double`.

    (PR − 1)/(d − 1) needs tr(C) and ‖C‖²_F alone, so one symmetric product (BLAS syrk: half of the multiplications of
    a full one) is all the work. The rows are centred in their own precision and divided by their root mean square before
    they are rounded to float32, so nothing overflows. None for fewer than two different rows, or one dimension.
    Cost n·d² multiply-adds on the smaller of n and d.

    >>> x = np.random.default_rng(0).standard_normal((500, 8)) * np.arange(1, 9) + 100
    >>> abs(isoscore_of_rows(x) - isoscore(Cloud.of_rows(x))) < 1e-6
    True
    """
    x = np.asarray(rows)
    x = x if x.dtype in (np.float32, np.float64) else x.astype(np.float64)
    n, d = x.shape
    if n < 2 or d < 2:
        return None
    centred = x - x.mean(0, dtype=np.float64).astype(x.dtype)
    flat = centred.ravel()
    energy = float(flat @ flat)
    whole = energy + n * float(np.square(x.mean(0, dtype=np.float64)).sum())
    if not energy > (1e-12 if x.dtype == np.float64 else 1e-9) * whole:
        return None
    scale = (energy / flat.size) ** 0.5
    kind, syrk = (np.float64, blas.dsyrk) if double else (np.float32, blas.ssyrk)
    small = np.divide(centred, scale, dtype=x.dtype).astype(kind, copy=False)
    # The transpose of a C-ordered matrix is Fortran-ordered: BLAS reads it in place.
    gram = syrk(1.0, small.T) if n >= d else syrk(1.0, small.T, trans=1)
    diagonal = np.diag(gram).astype(np.float64)
    # Only the upper triangle is filled, the lower is zero: twice the whole less the diagonal is ‖·‖²_F.
    square = 2 * float(np.vdot(gram, gram)) - float(diagonal @ diagonal)
    return float((diagonal.sum() ** 2 / square - 1) / (d - 1))
