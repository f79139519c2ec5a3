"""Measures of how evenly the spectrum falls: RankMe and α-ReQ."""

import math

import numpy as np

from headscan.measures.measure import measure
from headscan.measures.spectrum import amplitude_entropy, amplitudes, entropy_of, rank_ends
from headscan.run.vocabulary import Term
from headscan.statistics import Cloud
from headscan.statistics.linearisation import Gradient, Moments
from headscan.statistics.uncertainty import Floats

# The fewest vectors a dimension for an interval: below, the intervals of both measures cover only
# 0.70 to 0.90 (docs/intervals.md).
FEW = 10


def _few(at: Moments) -> bool:
    """Return whether there are too few vectors for a derivative to give the error.

    The weakest directions weigh most here, and few vectors lie along them.
    """
    return 0 < at.count < FEW * len(at.energies)


def _rankme_gradient(at: Moments) -> Gradient | None:
    """Return the derivative e^S·∂S/∂λ, with S the entropy of the amplitudes."""
    entropy = None if _few(at) else amplitude_entropy(at)
    if entropy is None:
        return None
    value, slope = entropy
    return Gradient(energies=float(np.exp(value)) * slope)


@measure(
    Term(
        "RankMe",
        sentence="Effective rank with amplitudes σ in place of energies σ²: weak directions count "
        "more (uncentred).",
        formula="exp(−Σ pᵢ log pᵢ),  pᵢ = σᵢ/Σσ",
        range=(1.0, None),
        unit="dimensions",
        source="Garrido et al. 2023, arXiv:2210.02885; Roy and Vetterli 2007",
        undefined="no vectors, or all of them zero",
    ),
    group="spectra",
    core=False,
    spectral=True,
    cost="O(d³) after one pass of O(nd²)",
    multiple=True,
    order=12,
    docs="spectra.md",
    gradient=_rankme_gradient,
    ends=rank_ends,
)
def rankme(cloud: Cloud) -> float | None:
    """Return exp of the entropy of σ/Σσ; in [1, min(n, d)].

    The published +1e-7 inside the logarithm is left out (0 log 0 = 0).

    >>> round(rankme(Cloud.of_rows([[4.0, 0.0], [0.0, 1.0]])), 4)
    1.6494
    """
    shares = amplitudes(cloud)
    return None if shares is None else math.exp(entropy_of(shares))


# The window of ranks. Clouds narrower than WIDE are fitted from rank 2 to the last.
FIRST = 11
LAST = 500
WIDE = 24


def _window(width: int) -> tuple[int, int]:
    """Return the first and the last rank of the fit, counted from 1."""
    return (FIRST, min(LAST, width // 2)) if width >= WIDE else (2, width)


def _fit(energies: Floats, floor: float) -> tuple[slice, Floats] | None:
    """Return the window of ranks, and the weights of the logarithms of its eigenvalues in α.

    α is the slope of log λ = c − α log i by least squares, which is linear in log λ. None where an
    eigenvalue in the window is rounding, that is at most `floor`.
    """
    low, high = _window(len(energies))
    window = slice(low - 1, high)
    if high - low < 1 or not energies[window][-1] > floor:
        return None
    x = np.log(np.arange(low, high + 1))
    deviations = x - x.mean()
    return window, -deviations / (deviations**2).sum()


def _alpha_req_gradient(at: Moments) -> Gradient | None:
    """Return the derivative of α by the eigenvalues in the window."""
    fit = None if _few(at) else _fit(at.energies, 0.0)
    if fit is None:
        return None
    window, weight = fit
    slope = np.zeros(len(at.energies))
    slope[window] = weight / at.energies[window]
    return Gradient(energies=slope)


def slow(rows: Floats) -> float | None:
    """Return α-ReQ of the rows [n, d] by numpy's own fit of a line."""
    width = rows.shape[1]
    energies = np.linalg.svd(rows, compute_uv=False) ** 2
    energies = np.pad(energies, (0, width - len(energies)))
    low, high = (11, min(500, width // 2)) if width >= 24 else (2, width)
    window = energies[low - 1 : high]
    if len(window) < 2 or window[-1] <= 1e-13 * energies[0]:
        return None
    ranks = np.arange(low, high + 1)
    slope, _ = np.polyfit(np.log(ranks), np.log(window), 1)
    return -float(slope)


@measure(
    Term(
        "α-ReQ",
        sentence="How fast eigenvalues fall with their rank: λᵢ ∝ i^−α over ranks 11 to min(500, "
        "d/2), of narrow clouds 2 to d.",
        formula="−slope of log λᵢ on log i",
        range=(0.0, None),
        source="Agrawal et al. 2022, arXiv:2202.05808; window stated, uncentred",
        undefined="fewer than two eigenvalues in the window above rounding",
    ),
    group="spectra",
    core=False,
    spectral=True,
    cost="O(d³) after one pass of O(nd²)",
    multiple=True,
    order=13,
    docs="spectra.md",
    reference=slow,
    gradient=_alpha_req_gradient,
)
def alpha_req(cloud: Cloud) -> float | None:
    """Return α of the second moment's eigenvalues, by least squares over the window of ranks.

    It goes from 0 (a ball) up, and depends on the window; around 1 is what the source finds in
    networks that generalise well. A cloud without structure has an α above 0, too: of n Gaussian
    vectors, that of the Marchenko-Pastur law (see the Gaussian null beside it).

    >>> bool(abs(alpha_req(np.diag(np.arange(1.0, 41.0) ** -1.5)) - 3.0) < 1e-9)     # λ is σ²
    True
    """
    fit = _fit(cloud.energies, cloud.rounding) if cloud.count else None
    if fit is None:
        return None
    window, weight = fit
    return max(0.0, float(weight @ np.log(cloud.energies[window])))
