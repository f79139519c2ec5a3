"""Uniformity and alignment on the unit sphere (Wang and Isola 2020, arXiv:2005.10242)."""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy.special import hyp0f1, ive

__all__ = ["alignment", "uniformity", "uniformity_floor"]


def uniformity(rows, *, t: float = 2.0, block_bytes: int = 2**26) -> float | None:
    """log of the mean over all ordered pairs of distinct rows of exp(−t‖x − y‖²), rows scaled to length 1; exact.

    In [floor, 0]: 0 when all directions are one, near `uniformity_floor(d, t)` when they fill the sphere (a little below
    it for few rows, since the floor is an expectation). Rows of norm zero are left out; None for fewer than two others.
    Computed as −2t + log mean exp(2t·cos), in blocks: cost O(n²d), memory O(block).

    >>> round(uniformity([[1.0, 0.0], [-2.0, 0.0]]), 6)      # squared distance 4, t = 2
    -8.0
    """
    x = torch.as_tensor(np.asarray(rows, dtype=np.float64))
    lengths = torch.linalg.vector_norm(x, dim=1)
    u = x[lengths > 0] / lengths[lengths > 0, None]
    n = len(u)
    if n < 2:
        return None
    step, total = max(1, block_bytes // (8 * n)), -math.inf
    for start in range(0, n, step):
        cosines = u[start : start + step] @ u.T
        cosines[torch.arange(len(cosines)), start + torch.arange(len(cosines))] = -torch.inf
        total = float(np.logaddexp(total, float(torch.logsumexp(2 * t * cosines.flatten(), 0))))
    return min(0.0, total - math.log(n * (n - 1)) - 2 * t)


def uniformity_floor(width: int, *, t: float = 2.0) -> float:
    """What `uniformity` tends to for directions uniform on the sphere: −2t + log ₀F₁(; d/2; t²).

    E exp(2t·cos θ) of a uniform direction is Γ(ν + 1)·I_ν(2t)/tᵛ with ν = d/2 − 1, which is ₀F₁(; d/2; t²). One
    dimension has two directions only: ₀F₁(; 1/2; t²) = cosh 2t, as it must be.

    >>> round(uniformity_floor(768), 4), round(uniformity_floor(1), 4) == round(math.log(math.cosh(4)) - 4, 4)
    (-3.9896, True)
    """
    nu, value = width / 2 - 1, float(hyp0f1(width / 2, t * t))
    if not math.isfinite(value):  # large t: through the scaled Bessel function
        return float(np.log(ive(nu, 2 * t)) + math.lgamma(nu + 1) - nu * math.log(t))
    return math.log(value) - 2 * t


def alignment(one, other, *, alpha: float = 2.0) -> float | None:
    """Mean of ‖x̂ − ŷ‖^α over pairs of rows [n, d], both scaled to length 1 here (the published snippet leaves it to you).

    In [0, 2^α], 0 when every pair agrees in direction; unrelated directions give 2 for α = 2 (1 − cos, doubled). Pairs
    with a vector of norm zero are left out; None where no pair remains.

    >>> alignment([[1.0, 0.0]], [[0.0, 5.0]]).__round__(6)
    2.0
    """
    x, y = (torch.as_tensor(np.asarray(rows, dtype=np.float64)) for rows in (one, other))
    a, b = torch.linalg.vector_norm(x, dim=1), torch.linalg.vector_norm(y, dim=1)
    kept = (a > 0) & (b > 0)
    if not bool(kept.any()):
        return None
    difference = x[kept] / a[kept, None] - y[kept] / b[kept, None]
    return float(torch.linalg.vector_norm(difference, dim=1).pow(alpha).mean())
