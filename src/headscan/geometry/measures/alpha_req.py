"""α-ReQ: How fast the eigenvalues fall, as a power of their rank."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headscan.geometry.explained import MeasureWords
from headscan.geometry.measure import measure
from headscan.geometry.moments import Gradient, Moments
from headscan.statistics import Cloud

__all__ = ["alpha_req"]

FIRST, LAST, WIDE = 11, 500, 24  # the window of ranks; narrower clouds than WIDE are fitted from rank 2 to the last


def _fit(energies: npt.NDArray[np.float64], floor: float) -> tuple[float, npt.NDArray[np.float64]] | None:
    """α and ∂α/∂λ [d] of log λ = c − α log i, least squares over the window; None where an eigenvalue there is rounding."""
    d = len(energies)
    low, high = (FIRST, min(LAST, d // 2)) if d >= WIDE else (2, d)
    kept = slice(low - 1, high)
    values = energies[kept]
    if len(values) < 2 or not values[-1] > floor:
        return None
    x = np.log(np.arange(low, high + 1))
    weight = -(x - x.mean()) / ((x - x.mean()) ** 2).sum()
    slope = np.zeros(d)
    slope[kept] = weight / values
    return float(weight @ np.log(values)), slope


def _gradient(at: Moments) -> Gradient | None:
    found = _fit(at.energies, 0.0)
    return None if found is None else Gradient(energies=found[1])


def slow(rows: npt.NDArray[np.float64]) -> float | None:
    """The same with numpy's own fit of a line."""
    energies = np.linalg.svd(rows, compute_uv=False) ** 2
    energies = np.pad(energies, (0, rows.shape[1] - len(energies)))
    low, high = (11, min(500, rows.shape[1] // 2)) if rows.shape[1] >= 24 else (2, rows.shape[1])
    kept = energies[low - 1 : high]
    if len(kept) < 2 or kept[-1] <= 1e-13 * energies[0]:
        return None
    return -float(np.polyfit(np.log(np.arange(low, high + 1)), np.log(kept), 1)[0])


@measure(
    MeasureWords(
        title="α-ReQ",
        group="spectra",
        sentence="How fast eigenvalues fall with their rank: λᵢ ∝ i^−α over ranks 11 to min(500, d/2), of narrow clouds 2 to d.",
        formula="−slope of log λᵢ on log i",
        range=(0.0, None),
        source="Agrawal et al. 2022, arXiv:2202.05808; window stated, uncentred",
        undefined="fewer than two eigenvalues in the window above rounding",
        cost="O(d³) after one pass of O(nd²)",
        spectral=True,
        core=False,
        multiple=True,
        order=13,
        docs="spectra.md",
    ),
    reference=slow,
    gradient=_gradient,
)
def alpha_req(cloud: Cloud) -> float | None:
    """α of the second moment's eigenvalues, by least squares over the window of ranks; from 0 (a ball) up. It depends on the
    window; around 1 is what the source finds in networks that generalise well. A cloud without structure has an α above 0, too:
    of n Gaussian vectors, that of the Marchenko-Pastur law (see the Gaussian null beside it).

    >>> bool(abs(alpha_req(np.diag(np.arange(1.0, 41.0) ** -1.5)) - 3.0) < 1e-9)     # λ is σ²
    True
    """
    found = _fit(cloud.energies, cloud.rounding) if cloud.count else None
    return None if found is None else max(0.0, found[0])
