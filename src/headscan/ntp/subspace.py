"""The in-support subspace F, its projection, and the sparse finite part of the logits, all in O(nnz).

F = span{(e_z - e_z') ẽ_jᵀ : z, z' in S_j} holds the differences of logits inside supports; its orthogonal complement
holds the logits that are constant on each support. Training fixes the part in F (to log-odds) and lets the part in F⊥
grow.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from headscan.ntp.arrays import Floats
from headscan.ntp.labels import SoftLabels
from headscan.ntp.supports import Supports

__all__ = ["in_support", "in_support_dimension", "out_of_support", "sparse_component"]


def in_support_dimension(supports: Supports) -> int:
    """dim F = Σ_j (k_j - 1).

    >>> in_support_dimension(Supports.of([[0, 1], [2], [0, 1, 2]], vocabulary=4))
    3
    """
    return int((supports.sizes - 1).sum())


def in_support(logits: npt.NDArray[np.floating[Any]], supports: Supports) -> Floats:
    """P_F(L) on the stored entries, float64 [nnz]: L[j, z] - mean of L[j, ·] over S_j.

    `logits` is dense [m, V] or already the values on the support [nnz]. Outside the support P_F(L) is zero. This equals
    the published E_jᵀ(E_jE_jᵀ)⁻¹E_j ℓ_j without an inverse; O(nnz).

    >>> in_support(np.array([[3.0, 1.0, 9.0]]), Supports.of([[0, 1]], vocabulary=3)).tolist()
    [1.0, -1.0]
    """
    wide: Floats = np.asarray(logits, dtype=np.float64)
    values = wide if wide.ndim == 1 else wide[supports.rows, supports.indices]
    means: Floats = np.add.reduceat(values, supports.indptr[:-1]) / supports.sizes
    return values - np.repeat(means, supports.sizes)


def out_of_support(logits: npt.NDArray[np.floating[Any]], supports: Supports, *, centre: bool = True) -> Floats:
    """P_⊥(L) = L - P_F(L), dense float64 [m, V]; with `centre` each row's mean is removed too (logits have a free
    shift).

    >>> out_of_support(np.array([[3.0, 1.0, -4.0]]), Supports.of([[0, 1]], vocabulary=3)).tolist()
    [[2.0, 2.0, -4.0]]
    """
    rest = np.array(logits, dtype=np.float64)
    rest[supports.rows, supports.indices] -= in_support(rest, supports)
    return rest - rest.mean(1, keepdims=True) if centre else rest


def sparse_component(labels: SoftLabels) -> Floats:
    """L^in on the stored entries, float64 [nnz]: log p_jz - mean of log p_j over S_j.

    The one matrix of F with L[j, z] - L[j, z'] = log(p_jz / p_jz'); the logits of a trained model converge to it inside
    the supports (Theorem 2 of arXiv:2408.15417). O(nnz).

    >>> labels = SoftLabels.of([[2, 1, 0], [0, 0, 5]])
    >>> sparse_component(labels).round(4).tolist()
    [0.3466, -0.3466, 0.0]
    """
    return in_support(np.log(labels.probability), labels.supports)
