"""Partition isotropy of a table of vectors: does Σ_w exp(c·w) depend on the direction c?

Mu and Viswanath 2018, arXiv:1702.01417, after Arora et al. 2016: I(W) = min_c Z(c)/max_c Z(c), Z(c) = Σ_w exp(c·w),
over the unit eigenvectors c of WᵀW. An eigenvector has no sign; published code takes whichever its solver returned
(or the rows of the eigenvector matrix, which are no eigenvectors at all). Here both ±c count, so the value is one
number, not a function of the solver; and everything stays in log space, where nothing overflows.
"""

from __future__ import annotations

import math

import numpy.typing as npt
import torch
from torch import Tensor

__all__ = ["log_partition", "partition_isotropy"]


def log_partition(table: npt.ArrayLike, directions: npt.ArrayLike) -> Tensor:
    """log Z(c) = log Σ_w exp(c·w) of each direction, a column of [d, m]; in blocks, float64 [m]. Cost O(Vdm).

    >>> log_partition([[1000.0, 0.0], [0.0, 0.0]], torch.eye(2)).tolist()
    [1000.0, 0.6931471805599453]
    """
    w = torch.as_tensor(table, dtype=torch.float64)
    c = torch.as_tensor(directions, dtype=torch.float64)
    found = torch.full((c.shape[1],), -torch.inf, dtype=torch.float64)
    step = max(1, 2**23 // max(1, c.shape[1]))
    for start in range(0, len(w), step):
        found = torch.logaddexp(found, torch.logsumexp(w[start : start + step] @ c, dim=0))
    return found


def _both_signs(table: Tensor, directions: Tensor) -> Tensor:
    """`log_partition` of the directions and of their opposites [2m], from one product."""
    found = torch.full((2, directions.shape[1]), -torch.inf, dtype=torch.float64)
    step = max(1, 2**23 // max(1, directions.shape[1]))
    for start in range(0, len(table), step):
        products = table[start : start + step] @ directions
        found[0] = torch.logaddexp(found[0], torch.logsumexp(products, dim=0))
        found[1] = torch.logaddexp(found[1], torch.logsumexp(products.neg_(), dim=0))
    return found.flatten()


def partition_isotropy(table: npt.ArrayLike) -> dict[str, float | None]:
    """I(W), its published approximations, and I₂, of a table [V, d].

    Keys, each in [0, 1] (1: isotropic) unless said:
        partition: exp(log_partition_range), may round to 0 where the range is large;
        log_partition_range: log min Z − log max Z over both signs of every eigenvector, in nats, ≤ 0;
        partition_first: (V − ‖Σw‖)/(V + ‖Σw‖), first order in the length of the rows; negative where ‖Σw‖ > V;
        partition_second: (V − ‖Σw‖ + ½σ²_min)/(V + ‖Σw‖ + ½σ²_max), second order; both lose their meaning for long rows;
        partition_spread: I₂ of Wang et al. 2020, sqrt(Σ(Z − Z̄)²/(m·Z̄²)), the relative spread of Z; ≥ 0, 0: isotropic.

    All values change with the rows' scale: compare tables of one
    model, or scale them first. Undefined (None) for a table without rows. Cost O(Vd² + d³).

    >>> round(partition_isotropy(torch.cat([torch.eye(2), -torch.eye(2)]))["partition"], 6)
    1.0
    >>> partition_isotropy([[3.0, 0.0]])["log_partition_range"]      # Z(c) = exp(3), Z(−c) = exp(−3)
    -6.0
    """
    w = torch.as_tensor(table, dtype=torch.float64)
    names = ("partition", "log_partition_range", "partition_first", "partition_second", "partition_spread")
    if not len(w):
        return dict.fromkeys(names)
    values, vectors = torch.linalg.eigh(w.T @ w)
    both = _both_signs(w, vectors)
    low, high = float(both.min()), float(both.max())
    rows, total = len(w), float(torch.linalg.vector_norm(w.sum(0)))
    ratio = (both - high).exp()  # Z over its maximum
    return {
        "partition": math.exp(low - high),
        "log_partition_range": low - high,
        "partition_first": (rows - total) / (rows + total),
        "partition_second": (rows - total + float(values[0].clamp(min=0)) / 2) / (rows + total + float(values[-1]) / 2),
        "partition_spread": float(((ratio - ratio.mean()).square().mean()).sqrt() / ratio.mean()),
    }
