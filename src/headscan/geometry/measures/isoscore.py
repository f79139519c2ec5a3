"""IsoScore: Share of dimensions used evenly around the mean."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
from scipy.linalg import blas

from headscan.geometry.explained import MeasureWords
from headscan.geometry.measure import MEASURES, measure
from headscan.geometry.measures.participation_ratio import participation_ratio
from headscan.geometry.moments import Gradient, Moments
from headscan.geometry.noise import Noise
from headscan.statistics import Cloud

__all__ = ["isoscore", "isoscore_of_rows"]


def _gradient(at: Moments) -> Gradient | None:
    """The participation ratio's, divided by d − 1."""
    found = MEASURES["participation_ratio"].gradient
    gradient = found(at) if found else None
    return None if gradient is None or len(at.mean) < 2 else gradient.times(1 / (len(at.mean) - 1))


def _bias(cloud: Cloud, noise: Noise) -> float | None:
    """The participation ratio's, divided by d − 1."""
    found, rest = MEASURES["participation_ratio"].bias, max(1, cloud.width - 1)
    bias = found(cloud, replace(noise, error=noise.error * rest)) if found else None
    return None if bias is None or cloud.width < 2 else bias / rest


@measure(
    MeasureWords(
        title="IsoScore",
        group="spectra",
        sentence="Share of dimensions used evenly around the mean: 1 for a round cloud, 0 for a line (centred).",
        formula="(PR − 1) / (d − 1)",
        range=(0.0, 1.0),
        source="Rudman et al. 2022, arXiv:2108.07344; equal to its six steps, by algebra",
        undefined="fewer than two different vectors, or one dimension",
        cost="O(d²) after one pass of O(nd²)",
        spectral=True,
        column="iso-\nscore",
        multiple=True,
        order=7,
        docs="spectra.md",
    ),
    gradient=_gradient,
    bias=_bias,
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


def isoscore_of_rows(rows: npt.ArrayLike, *, double: bool = False) -> float | None:
    """IsoScore of a matrix [n, d] by itself, fast: to 1e-6 in float32's arithmetic, or to rounding with `double`.

    (PR − 1)/(d − 1) needs tr(C) and ‖C‖²_F alone, so one symmetric product (BLAS syrk: half of the multiplications of
    a full one) is all the work. The rows are centred twice in their own precision and divided by their root mean square before
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
    mean = x.mean(0, dtype=np.float64)
    centred = x - mean.astype(x.dtype)
    # The mean was rounded; what is left of it, up to the deviation itself where the mean is large, is taken away too.
    centred -= centred.mean(0, dtype=np.float64).astype(x.dtype)
    flat = centred.ravel()
    energy = float(flat @ flat)
    if not energy > 1e-26 * n * float(mean @ mean):
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
