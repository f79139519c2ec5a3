"""Derivatives and biases that several spectral measures share."""

from __future__ import annotations

import numpy as np

from headscan.statistics.linearisation import Moments
from headscan.statistics.uncertainty import Floats

SINGLE = 128  # of a spectrum's values that `entropy_bias` looks at one by one; the others in as many groups


def share_gradient(moments: Moments, slope: Floats, shares: Floats) -> Floats:
    """∂/∂λ of a function of the shares pᵢ = λᵢ/Σλ whose derivative by pᵢ is `slope` [d]: (slope − p·slope)/Σλ."""
    return (slope - float(shares @ slope)) / moments.trace


def amplitude_entropy(moments: Moments) -> tuple[float, Floats] | None:
    """The entropy S of p = σ/Σσ, σ = √λ, and ∂S/∂λ = (−log p − S)/(2σΣσ) [d]; None where a σ is zero."""
    values = np.sqrt(np.maximum(moments.energies, 0))
    if not values.sum() > 0 or not values.min() > 0:
        return None
    shares = values / values.sum()
    logs = np.log(shares)
    slope: Floats = (-logs + float(shares @ logs)) / (2 * values * values.sum())
    return -float(shares @ logs), slope


def entropy_bias(energies: Floats, tokens: float, power: float = 1.0) -> float:
    """How far the entropy of n independent Gaussian tokens' shares pᵢ ∝ λᵢ^power lies from the true one, on average.

    Second order in the noise Δ of the second moment, of which Var Δᵢᵢ = 2λᵢ²/n and Var Δᵢⱼ = λᵢλⱼ/n: with Fᵢ = ∂S/∂λᵢ,
    E = (1/n)(Σᵢ λᵢ² ∂Fᵢ/∂λᵢ + ½ Σᵢ≠ⱼ λᵢλⱼ (Fᵢ − Fⱼ)/(λᵢ − λⱼ)).

    >>> round(entropy_bias(np.ones(10), 1000.0) * 2000, 3)     # flat: −(d + 1)/2n + 1/dn of the trace's own noise
    -10.8
    """
    kept = energies[energies > 1e-12 * energies.max()]
    if len(kept) < 2:
        return 0.0
    kept = kept / kept.sum()
    share = kept**power / (kept**power).sum()
    above = -np.log(share) + float(share @ np.log(share))
    slope = power * above * share / kept
    moved = -power * (1 - share) / kept - slope
    curvature = power * (moved * share / kept + above * share * (power * (1 - share) - 1) / kept**2)
    near = power * share * ((power - 1) * above - power) / kept**2  # the limit of the quotient
    exact = float(kept**2 @ curvature)
    # Of many, neighbours in the spectrum stand for one another, as their mean; the strongest stand alone.
    order = np.argsort(-kept)
    pieces = [*order[:SINGLE, None], *(piece for piece in np.array_split(order[SINGLE:], SINGLE) if len(piece))]
    kept, slope, near = (np.array([values[piece].mean() for piece in pieces]) for values in (kept, slope, near))
    weight = kept * [len(piece) for piece in pieces]
    apart = kept[:, None] - kept[None, :]
    with np.errstate(divide="ignore", invalid="ignore"):
        quotient = np.where(
            np.abs(apart) > 1e-7 * kept[:, None], (slope[:, None] - slope[None, :]) / apart, near[:, None]
        )
    np.fill_diagonal(quotient, near)
    return (exact + 0.5 * float(weight @ quotient @ weight - (weight * kept) @ near)) / tokens


def top_bias(energies: Floats, tokens: float) -> float:
    """How far the top direction's share p₁ = λ₁/Σλ of n independent Gaussian tokens lies from the true one, on average.

    Second order in the noise Δ of the second moment, Var Δᵢᵢ = 2λᵢ²/n, Var Δᵢⱼ = λᵢλⱼ/n: the first eigenvalue grows by
    Σⱼ λ₁λⱼ/(λ₁ − λⱼ)/n, and numerator and denominator err together. A gap below the noise of λ₁ itself counts as that.

    >>> spectrum = np.array([2.0, 1.0, 0.5, 0.25])
    >>> rows = np.random.default_rng(0).standard_normal((4000, 60, 4)) * spectrum**0.5
    >>> found = np.linalg.eigvalsh(rows.transpose(0, 2, 1) @ rows)
    >>> error = float((found[:, -1] / found.sum(1)).mean() - 2 / 3.75)
    >>> round(error, 2), round(top_bias(spectrum, 60.0), 2)
    (0.01, 0.01)
    """
    shares = energies / energies.sum()
    gap = np.maximum(shares[0] - shares[1:], shares[0] * (2 / tokens) ** 0.5)
    grown = float((shares[0] * shares[1:] / gap).sum())
    return (grown - 2 * float(shares[0]) ** 2 + 2 * float(shares[0]) * float(shares @ shares)) / tokens
