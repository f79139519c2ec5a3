"""Uniformity and alignment on the unit sphere (Wang and Isola 2020, arXiv:2005.10242)."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import hyp0f1, ive

from headscan.geometry.explained import Cells
from headscan.geometry.interval import left_out

__all__ = ["alignment", "uniformity", "uniformity_by_block", "uniformity_floor"]


def uniformity(rows: npt.ArrayLike, *, t: float = 2.0, block_bytes: int = 2**26) -> float | None:
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


def uniformity_by_block(rows: npt.ArrayLike, blocks: npt.ArrayLike, first: npt.ArrayLike, *, t: float = 2.0) -> Cells:
    """`uniformity` of a sample [n, d] with its 95 % interval over blocks of text, with and without position 0.

    `blocks` [n] says which block a row is from, `first` [n] whether it stood at position 0. exp(−t‖x − y‖²) is added up
    for each pair of groups once; what remains without a block, or without position 0, is a sum of some of these. Keys
    `uniformity`, `uniformity_interval`, and both with `_without_first`. Cost O(n²d), half the products of `uniformity`.

    >>> rows = np.random.default_rng(0).standard_normal((60, 3))
    >>> found = uniformity_by_block(rows, np.arange(60) % 4, np.arange(60) < 5)
    >>> round(found["uniformity"], 9) == round(uniformity(rows), 9)
    True
    >>> round(found["uniformity_without_first"], 9) == round(uniformity(rows[5:]), 9)
    True
    """
    x, first = np.asarray(rows, dtype=np.float64), np.asarray(first, dtype=bool)
    lengths = np.linalg.norm(x, axis=1)
    kept = lengths > 0
    groups, inverse = np.unique(2 * np.asarray(blocks)[kept] + first[kept], return_inverse=True)
    u = x[kept] / lengths[kept, None]
    members = [torch.from_numpy(u[inverse == g]) for g in range(len(groups))]
    logs, sizes = np.full((len(groups), len(groups)), -np.inf), np.array([len(rows) for rows in members], dtype=float)
    for a, one in enumerate(members):
        for b in range(a, len(members)):
            cosines = one @ members[b].T
            if a == b:
                cosines.fill_diagonal_(-torch.inf)
            logs[a, b] = logs[b, a] = float(torch.logsumexp(2 * t * cosines.flatten(), 0))

    def value(chosen: npt.NDArray[np.float64]) -> float | None:
        n = sizes[chosen].sum()
        if n < 2:
            return None
        total = float(np.logaddexp.reduce(logs[np.ix_(chosen, chosen)], axis=None))
        return min(0.0, total - math.log(n * (n - 1)) - 2 * t)

    found: Cells = {}
    for suffix, part in (("", np.ones(len(groups), dtype=bool)), ("_without_first", groups % 2 == 0)):
        owners = np.unique(groups[part] // 2)
        others = [value(part & (groups // 2 != owner)) for owner in owners]
        counts = [sizes[part & (groups // 2 == owner)].sum() for owner in owners]
        found[f"uniformity{suffix}"] = value(part)
        found[f"uniformity{suffix}_interval"] = left_out(value(part), others, counts, bounds=(-4 * t, 0.0))
    return found


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


def alignment(one: npt.ArrayLike, other: npt.ArrayLike, *, alpha: float = 2.0) -> float | None:
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
