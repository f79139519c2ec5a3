"""Neural-collapse metrics NC1 to NC5 of a language model, from soft labels: next tokens are the classes.

One pass: class means and variances come from sparse products of the counts with the embeddings, so no one-hot matrix
[batch, classes] is ever formed. The formulas and their sources stand in `headscan.statistics.collapse`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from headscan.ntp.arrays import Floats, Ints
from headscan.ntp.labels import SoftLabels
from headscan.ntp.similarity import unit_rows
from headscan.ntp.support_metrics import Embeddings
from headscan.run import BadInput
from headscan.statistics.collapse import nearest_means, pair_sums, simplex_distance, variation

__all__ = ["CollapseMetrics", "class_statistics", "collapse_metrics"]


@dataclass(frozen=True)
class CollapseMetrics:
    """NC1 to NC5; see `headscan.statistics.collapse` for those that geometry measures too.

    Attributes:
        classes, pairwise_classes: next tokens that occur, and those of which pairs were taken.
        cdnv, cdnv_squared (NC1), equinorm (NC2), kernel_mean, kernel_variance, spread (GNC2), duality (NC3),
            duality_spread (UNC3): as there.
        scatter_ratio, scatter_pinv (NC1): tr Σ_W / tr Σ_B; tr(Σ_B† Σ_W) / C.
        simplex, dual_simplex (NC2, NC3): distance of the class means, and of words against means, from a simplex.
        duality_variance (UNC3): variance of cos(w_c, v_c).
        agreement (NC4): share of positions where argmax ⟨w_c, h⟩ (+ bias) is the class with the nearest mean.
        outside (NC5): mean |cos(μ_c, mean of features from outside the training distribution)|, where such are given.
    """

    classes: int
    pairwise_classes: int
    cdnv: float | None
    cdnv_squared: float | None
    scatter_ratio: float
    scatter_pinv: float
    equinorm: float | None
    simplex: float | None
    kernel_mean: float | None
    kernel_variance: float | None
    spread: float | None
    dual_simplex: float | None
    duality: float
    duality_variance: float
    duality_spread: float | None
    agreement: float
    outside: float | None


def class_statistics(labels: SoftLabels, contexts: Floats) -> tuple[Ints, Floats, Floats, Floats]:
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
    embeddings: Embeddings, labels: SoftLabels, *, outside: Floats | None = None, pairs: int = 2048, seed: int = 0
) -> CollapseMetrics:
    """NC1 to NC5 of embeddings over soft labels.

    Pairs of classes are taken among at most `pairs`, drawn with `seed`; two classes with one mean (every context that one
    follows, the other follows as often) have no ratio and are left out of NC1. `outside` are features [n, d] from outside
    the training distribution. Raises `BadInput` where fewer than two tokens follow.
    """
    H = np.asarray(embeddings.contexts, dtype=np.float64)
    seen, n, means, variance = class_statistics(labels, H)
    K = len(seen)
    if K < 2:
        raise BadInput("Collapse metrics need at least two next-token classes.")
    W = np.asarray(embeddings.words, dtype=np.float64)[seen]
    centred = means - means.mean(0)
    chosen = np.arange(K)
    if pairs < K:
        chosen = np.sort(np.random.default_rng(seed).choice(K, pairs, replace=False))
    of_pairs = pair_sums(
        torch.from_numpy(means[chosen]), torch.from_numpy(variance[chosen]), centre=torch.from_numpy(means.mean(0))
    ).of()
    between = centred.T @ centred / K
    grand = labels.prior @ H
    total = ((H - grand) * labels.prior[:, None]).T @ (H - grand)
    shifted = means - grand
    within = total - (shifted * (n / n.sum())[:, None]).T @ shifted
    cosines = (unit_rows(centred) * unit_rows(W)).sum(1)
    offsets, words = torch.from_numpy(centred), torch.from_numpy(W)
    return CollapseMetrics(
        classes=K,
        pairwise_classes=len(chosen),
        cdnv=of_pairs.cdnv,
        cdnv_squared=of_pairs.cdnv_squared,
        scatter_ratio=float(np.trace(within) / np.trace(between)),
        scatter_pinv=float(np.trace(np.linalg.pinv(between, hermitian=True) @ within) / K),
        equinorm=variation(torch.linalg.vector_norm(offsets, dim=-1)),
        simplex=simplex_distance(offsets, offsets),
        kernel_mean=of_pairs.kernel_mean,
        kernel_variance=of_pairs.kernel_variance,
        spread=of_pairs.spread,
        dual_simplex=simplex_distance(words, offsets),
        duality=float(cosines.mean()),
        duality_variance=float(cosines.var()),
        duality_spread=variation(torch.from_numpy(cosines)),
        agreement=_agreement(embeddings, labels, H, W, seen, means),
        outside=None if outside is None else _outside(means, np.asarray(outside, dtype=np.float64)),
    )


def _agreement(embeddings: Embeddings, labels: SoftLabels, H: Floats, W: Floats, seen: Ints, means: Floats) -> float:
    bias = 0.0 if embeddings.bias is None else embeddings.bias[seen]
    agree = 0.0
    block = max(1, (1 << 22) // len(seen))
    for start in range(0, len(H), block):
        rows = slice(start, start + block)
        chosen = (H[rows] @ W.T + bias).argmax(1)
        nearest = nearest_means(torch.from_numpy(H[rows]), torch.from_numpy(means)).numpy()
        agree += float(labels.prior[rows] @ (chosen == nearest))
    return agree


def _outside(means: Floats, outside: Floats) -> float:
    direction = outside.mean(0)
    return float(np.abs(unit_rows(means) @ (direction / np.linalg.norm(direction))).mean())
