"""Effective rank: How many directions carry the cloud's energy (uncentred)."""

from __future__ import annotations

import numpy as np

from headscan.geometry.explained import MeasureWords
from headscan.geometry.measure import measure
from headscan.geometry.spectrum import shares_of
from headscan.statistics import Cloud

__all__ = ["effective_rank"]


@measure(
    MeasureWords(
        title="Effective rank",
        group="spectra",
        sentence="How many directions carry the cloud's energy (uncentred): exponential of the entropy of their shares.",
        formula="exp(−Σ pᵢ log pᵢ),  pᵢ = σᵢ²/Σσ²",
        range=(1.0, None),
        unit="dimensions",
        source="Roy and Vetterli 2007 (with energies σ² in place of σ)",
        undefined="no vectors, or all of them zero",
        cost="O(d³) after one pass of O(nd²)",
        spectral=True,
        column="eff.\nrank",
        multiple=True,
        order=5,
        docs="spectra.md",
    )
)
def effective_rank(cloud: Cloud) -> float | None:
    """Entropy-based rank of the uncentred second moment; in [1, min(n, d)].

    >>> round(effective_rank(Cloud.of_rows([[1, 0], [0, 1]])), 6)
    2.0
    """
    shares = shares_of(cloud)
    if shares is None:
        return None
    positive = shares[shares > 0]
    return float(np.exp(-(positive * np.log(positive)).sum()))
