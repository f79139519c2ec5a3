"""Neural-collapse metrics NC1 to NC5 of a language model, from soft labels: next tokens are the classes.

One pass: class means and variances come from sparse products of the counts with the embeddings, so no one-hot matrix
[batch, classes] and no K x K grid is ever formed (pairwise metrics run over tiles of a sample of classes).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from headscan.ntp.labels import SoftLabels
from headscan.ntp.similarity import unit_rows
from headscan.ntp.support_metrics import Embeddings
from headscan.run.errors import BadInput

__all__ = ["class_statistics", "collapse_metrics"]


def class_statistics(labels: SoftLabels, contexts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(classes seen [K], occurrences [K], means μ [K, d], variances σ² = E‖h - μ‖² [K]) of next-token classes.

    μ_c = Σ_j n_jc h_j / n_c, and σ_c² from Σ_j n_jc ‖h_j - g‖², centred on the grand mean g first so that no digits
    cancel.
    """
    if len(contexts) != labels.contexts:
        raise BadInput("There must be one embedding for each context.")
    by_class = labels.matrix().T.tocsr()
    occurrences = np.asarray(by_class.sum(1)).ravel()
    seen = np.flatnonzero(occurrences > 0)
    H = np.asarray(contexts, dtype=np.float64)
    grand = labels.prior @ H
    centred = H - grand
    n = occurrences[seen]
    shift = (by_class[seen] @ centred) / n[:, None]
    second = (by_class[seen] @ (centred**2).sum(1)) / n
    return seen, n, shift + grand, np.maximum(second - (shift**2).sum(1), 0.0)


def collapse_metrics(
    embeddings: Embeddings, labels: SoftLabels, *, outside: np.ndarray | None = None, pairs: int = 2048, seed: int = 0
) -> dict[str, Any]:
    """NC1 to NC5 as a JSON-able dictionary. μ̄_c = μ_c - μ_G with μ_G the unweighted mean of the class means.

    - `NC1_cdnv`, `NC1_cdnv_squared`: mean over class pairs of (σ_c² + σ_c'²) / (2 ‖μ_c - μ_c'‖^{2p}), p = 1 and 2
    - `NC1_quotient`: tr Σ_W / tr Σ_B; `NC1_pinv`: tr(Σ_B† Σ_W) / K
    - `NC2_equinorm`: coefficient of variation of ‖μ̄_c‖; `NC2_etf`: ‖M̄M̄ᵀ/‖·‖_F - (I - 11ᵀ/K)/√(K-1)‖_F, 0 for a
      simplex
    - `GNC2_mean`, `GNC2_variance`: of -log‖μ̂_c - μ̂_c'‖ over pairs, μ̂ = μ̄/‖μ̄‖
    - `NC3_etf`: the same as NC2_etf with W M̄ᵀ; `NC3_cosine`, `UNC3_variance`: mean and variance of cos(w_c, μ̄_c)
    - `NC4_agreement`: share of positions where argmax ⟨w_c, h⟩ (+ bias) is the class with the nearest mean
    - `NC5`: mean |cos(μ_c, mean of `outside`)| for features [n, d] from outside the training distribution, else None

    Pairwise terms use at most `pairs` classes, drawn with `seed`; pairs with equal means are left out of NC1.
    """
    seen, n, means, variance = class_statistics(labels, embeddings.contexts)
    K = len(seen)
    if K < 2:
        raise BadInput("Collapse metrics need at least two next-token classes.")
    H = np.asarray(embeddings.contexts, dtype=np.float64)
    W = np.asarray(embeddings.words, dtype=np.float64)[seen]
    centred = means - means.mean(0)
    chosen = np.arange(K)
    if pairs < K:
        chosen = np.sort(np.random.default_rng(seed).choice(K, pairs, replace=False))
    upper = np.triu_indices(len(chosen), 1)
    squared = np.maximum(cdist(means[chosen], means[chosen], "sqeuclidean")[upper], 1e-300)
    spread = (variance[chosen][:, None] + variance[chosen][None, :])[upper] / 2
    # Two classes may have one mean: every context that one follows, the other follows as often. They have no ratio.
    apart = squared > 1e-24 * max(float(squared.max()), 1e-300)
    ratio = spread[apart] / squared[apart]
    ratio_squared = ratio / squared[apart]
    unit = unit_rows(centred)
    kernel = -np.log(np.maximum(cdist(unit[chosen], unit[chosen])[upper][apart], 1e-12))
    between = centred.T @ centred / K
    grand = labels.prior @ H
    total = ((H - grand) * labels.prior[:, None]).T @ (H - grand)
    shifted = means - grand
    within = total - (shifted * (n / n.sum())[:, None]).T @ shifted
    norms = np.linalg.norm(centred, axis=1)
    cosines = (unit * unit_rows(W)).sum(1)
    return {
        "classes": K,
        "pairwise_classes": len(chosen),
        "NC1_cdnv": float(ratio.mean()),
        "NC1_cdnv_squared": float(ratio_squared.mean()),
        "NC1_quotient": float(np.trace(within) / np.trace(between)),
        "NC1_pinv": float(np.trace(np.linalg.pinv(between, hermitian=True) @ within) / K),
        "NC2_equinorm": float(norms.std() / norms.mean()),
        "NC2_etf": _simplex_error(centred, centred),
        "GNC2_mean": float(kernel.mean()),
        "GNC2_variance": float(kernel.var()),
        "NC3_etf": _simplex_error(W, centred),
        "NC3_cosine": float(cosines.mean()),
        "UNC3_variance": float(cosines.var()),
        "NC4_agreement": _agreement(embeddings, labels, seen, means),
        "NC5": None if outside is None else _outside(means, np.asarray(outside, dtype=np.float64)),
    }


def _simplex_error(A: np.ndarray, B: np.ndarray) -> float:
    """‖ABᵀ/‖ABᵀ‖_F - (I - 11ᵀ/K)/√(K-1)‖_F from ⟨ABᵀ, I - 11ᵀ/K⟩ alone: both terms have norm one."""
    K = len(A)
    norm = np.sqrt(max(float(((A.T @ A) * (B.T @ B)).sum()), 0.0))
    if norm == 0:
        return float("nan")
    inner = float((A * B).sum() - A.sum(0) @ B.sum(0) / K) / np.sqrt(K - 1)
    return float(np.sqrt(max(2 - 2 * inner / norm, 0.0)))


def _agreement(embeddings: Embeddings, labels: SoftLabels, seen: np.ndarray, means: np.ndarray) -> float:
    H = np.asarray(embeddings.contexts, dtype=np.float64)
    words = np.asarray(embeddings.words, dtype=np.float64)[seen]
    bias = 0.0 if embeddings.bias is None else embeddings.bias[seen]
    half = (means**2).sum(1) / 2
    agree = 0.0
    block = max(1, (1 << 22) // len(seen))
    for start in range(0, len(H), block):
        rows = slice(start, start + block)
        chosen = (H[rows] @ words.T + bias).argmax(1)
        nearest = (H[rows] @ means.T - half).argmax(1)  # the nearest mean: ‖h - μ‖² = ‖h‖² - 2(⟨h, μ⟩ - ‖μ‖²/2)
        agree += float(labels.prior[rows] @ (chosen == nearest))
    return agree


def _outside(means: np.ndarray, outside: np.ndarray) -> float:
    direction = outside.mean(0)
    return float(np.abs(unit_rows(means) @ (direction / np.linalg.norm(direction))).mean())
