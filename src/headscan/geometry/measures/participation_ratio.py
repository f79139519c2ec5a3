"""Participation ratio: How many directions carry the cloud's variance around its mean (centred)."""

from __future__ import annotations

import numpy as np

from headscan.geometry.explained import MeasureWords
from headscan.geometry.measure import measure
from headscan.geometry.moments import Gradient, Moments
from headscan.geometry.noise import Noise
from headscan.statistics import Cloud

__all__ = ["participation_ratio"]


def _gradient(at: Moments) -> Gradient | None:
    """2T/Q − 2T²/Q²·C by the covariance C, T = tr C, Q = ‖C‖²."""
    trace, square = at.centred_trace, at.centred_square
    if not trace > 0 or not square > 0:
        return None
    slope = 2 * trace / square - 2 * trace**2 / square**2 * at.energies
    return Gradient(energies=slope, outer=2 * trace**2 / square**2, centred=True)


def _bias(cloud: Cloud, noise: Noise) -> float | None:
    """As of Gaussian tokens, of which E‖Ĉ‖² = ‖C‖² + (‖C‖² + (tr C)²)/n: the noise is taken from ‖Ĉ‖², at most half of it.
    A ratio grows with the relative variance of what it is divided by, which is about its own."""
    value = participation_ratio(cloud)
    if value is None or not noise.tokens:
        return None
    share = min(0.5, (value + 1) / noise.tokens)
    return -value * share / (1 - share) + noise.error**2 / value


@measure(
    MeasureWords(
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
        column="part.\nratio",
        multiple=True,
        order=6,
        docs="spectra.md",
    ),
    gradient=_gradient,
    bias=_bias,
)
def participation_ratio(cloud: Cloud) -> float | None:
    """(Σλ)²/Σλ² of the centred covariance, without its eigenvalues: tr(C)²/‖C‖²_F; in [1, min(n − 1, d)].

    A covariance that is zero to rounding (all vectors equal) has no ratio: a deviation below 1e-13 of the mean is the
    rounding of the vectors themselves.

    >>> round(participation_ratio(Cloud.of_rows([[1, 0], [-1, 0], [0, 1], [0, -1]])), 6)
    2.0
    """
    if cloud.count < 2:
        return None
    trace = float(np.trace(cloud.covariance))
    if not trace > 1e-26 * float(cloud.mean @ cloud.mean):
        return None
    return trace**2 / float(np.vdot(cloud.covariance, cloud.covariance))
