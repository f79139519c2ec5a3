"""Support-aware collapse metrics SC1 to SC6: does a model have the geometry that its data predict?

Neural-collapse metrics take the next token for the class. Next-token prediction has no such classes: a context is
followed by many tokens, and what collapses is the set of contexts that share a support, once projected on F⊥.
Everything here runs over blocks of contexts, so memory stays at block x V.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import logsumexp

from headscan.ntp.prediction import Prediction
from headscan.ntp.similarity import gram_cosine, pattern_similarity, unit_rows
from headscan.ntp.subspace import in_support, out_of_support
from headscan.run.errors import BadInput

__all__ = ["Embeddings", "Spread", "class_spread", "collapse", "support_metrics"]

_BLOCK_ENTRIES = 1 << 22


@dataclass(frozen=True, eq=False)
class Embeddings:
    """A model's words W [V, d] and contexts H [m, d]; its logits are H Wᵀ + bias, with bias [V] or none."""

    words: np.ndarray
    contexts: np.ndarray
    bias: np.ndarray | None = None

    def logits(self, rows: slice = slice(None)) -> np.ndarray:
        """Logits of some contexts, float64 [rows, V]."""
        logits = np.asarray(self.contexts[rows], dtype=np.float64) @ np.asarray(self.words, dtype=np.float64).T
        return logits if self.bias is None else logits + self.bias


@dataclass(frozen=True)
class Spread:
    """How tight classes of contexts are: `cdnv` (0 = collapsed), cosines within a class (mean and least) and between."""

    cdnv: float
    same_cosine: float
    least_cosine: float
    other_cosine: float
    classes: int


def class_spread(X: np.ndarray, classes: np.ndarray, *, largest: int = 1024, seed: int = 0) -> Spread | None:
    """Class-distance-normalised variance and cosines of rows X [n, d] for classes int [n]; None without a pair.

    cdnv = mean over pairs of classes of (σ_c² + σ_c'²) / (2 ‖μ_c - μ_c'‖²). Only classes of two rows or more count,
    at most `largest` of them, drawn with `seed`.
    """
    counts = np.bincount(classes)
    chosen = np.flatnonzero(counts >= 2)
    if len(chosen) < 2:
        return None
    if len(chosen) > largest:
        chosen = np.sort(np.random.default_rng(seed).choice(chosen, largest, replace=False))
    place = np.full(len(counts), -1)
    place[chosen] = np.arange(len(chosen))
    rows = np.flatnonzero(place[classes] >= 0)
    X, group = np.asarray(X[rows], dtype=np.float64), place[classes[rows]]
    order = np.argsort(group, kind="stable")
    X, group = X[order], group[order]
    starts = np.flatnonzero(np.r_[True, group[1:] != group[:-1]])
    size = np.diff(np.append(starts, len(group)))
    mean = np.add.reduceat(X, starts) / size[:, None]
    variance = np.add.reduceat(((X - mean[group]) ** 2).sum(1), starts) / size
    square = (mean**2).sum(1)
    distance = np.maximum(square[:, None] + square[None, :] - 2 * mean @ mean.T, 1e-300)
    upper = np.triu_indices(len(chosen), 1)
    cdnv = ((variance[:, None] + variance[None, :]) / (2 * distance))[upper].mean()
    unit = unit_rows(X)
    total = np.add.reduceat(unit, starts)
    # Σ over ordered pairs of distinct rows of a class of their cosine = ‖Σ û‖² - Σ ‖û‖².
    lengths = np.add.reduceat((unit**2).sum(1), starts)
    within = ((total**2).sum(1) - lengths) / (size * (size - 1))
    least = min(
        float((unit[a : a + n] @ unit[a : a + n].T).min()) for a, n in zip(starts, np.minimum(size, 512), strict=True)
    )
    everything = float((total.sum(0) ** 2).sum())
    pairs = len(group) ** 2 - float((size**2).sum())
    return Spread(
        cdnv=float(cdnv),
        same_cosine=float(np.average(within, weights=size)),
        least_cosine=least,
        other_cosine=(everything - float((total**2).sum())) / pairs,
        classes=len(chosen),
    )


def collapse(embeddings: Embeddings, prediction: Prediction, *, rows: np.ndarray | None = None) -> dict[str, Any]:
    """SC1, subspace collapse: how tight contexts with equal supports lie, before and after projection on F⊥.

    Before: the context embeddings themselves. After: P_⊥ of their logits, where the part that soft labels keep apart
    (log-odds inside the support) is taken out. Both are centred over the contexts: what they all share (the tokens that
    never follow anything) would make every cosine one. `rows` limits it to a sample of contexts.
    """
    supports = prediction.labels.supports
    rows = np.arange(supports.contexts) if rows is None else rows
    classes = supports.unique()[1][rows]
    part = supports.take(rows)
    chosen = Embeddings(embeddings.words, embeddings.contexts[rows], embeddings.bias)
    hidden = np.asarray(chosen.contexts, dtype=np.float64)
    after = out_of_support(chosen.logits(), part)
    before, projected = class_spread(hidden - hidden.mean(0), classes), class_spread(after - after.mean(0), classes)
    return {
        "before": None if before is None else before.__dict__,
        "after": None if projected is None else projected.__dict__,
    }


def support_metrics(
    embeddings: Embeddings, prediction: Prediction, *, sample: int = 4096, seed: int = 0
) -> dict[str, Any]:
    """All of SC1 to SC6 and the alignments with the prediction, JSON-able. Cost O(m V d), memory one block of logits.

    - `SC1`: see `collapse` (on at most `sample` contexts drawn with `seed`, for m V memory's sake)
    - `SC2_words`, `SC2_contexts`: cosine of the Gram matrices with the predicted ones; `..._proxy`: with (S~ᵀS~)^½
    - `SC3`: ‖P_F(L) - L^in‖ / ‖L^in‖, 0 at the limit (None where every support is a single token)
    - `SC4`: share of contexts whose k_j largest logits are exactly S_j
    - `SC5`: margin min over S_j - max off S_j: mean, quantiles, share positive (contexts with a full support left out)
    - `SC6`: CE - H in nats a token, and the probability put outside the supports
    - `direction`: cosine of P_⊥(L), centred, with L^mm; `growth`: its length along L^mm over ‖L^mm‖ (R)
    - `pattern_words`, `pattern_contexts`: correlation of cosine matrices, as in the paper
    """
    labels, supports = prediction.labels, prediction.labels.supports
    V, m = labels.vocabulary, labels.contexts
    if np.shape(embeddings.words)[0] != V or len(embeddings.contexts) != m:
        raise BadInput(
            f"The model has {len(embeddings.words)} words and {len(embeddings.contexts)} contexts; the data {V}, {m}."
        )
    sizes, prior = supports.sizes, labels.prior
    margins, exact_top = np.full(m, np.nan), np.zeros(m, dtype=bool)
    inner = norm = predicted_norm = excess = outside = distance = 0.0
    block = max(1, _BLOCK_ENTRIES // V)
    logp = np.log(labels.probability)
    for start in range(0, m, block):
        rows = slice(start, min(start + block, m))
        part = supports.take(np.arange(rows.start, rows.stop))
        entries = slice(supports.indptr[rows.start], supports.indptr[rows.stop])
        L = embeddings.logits(rows)
        values = L[part.rows, part.indices]
        distance += float(((in_support(values, part) - prediction.sparse[entries]) ** 2).sum())
        logq = values - np.repeat(logsumexp(L, axis=1), part.sizes)
        weight = labels.counts[entries] / labels.total
        excess += float(weight @ (logp[entries] - logq))
        inside_mass = np.add.reduceat(np.exp(logq), part.indptr[:-1])
        outside += float(prior[rows] @ (1 - inside_mass))
        lowest = np.minimum.reduceat(values, part.indptr[:-1])
        masked = L.copy()
        masked[part.rows, part.indices] = -np.inf
        highest = masked.max(1)
        margins[rows] = np.where(np.isfinite(highest), lowest - highest, np.nan)
        exact_top[rows] = ~(margins[rows] <= 0)
        rest, target = out_of_support(L, part), prediction.low_rank(rows)
        inner += float((rest * target).sum())
        norm += float((rest**2).sum())
        predicted_norm += float((target**2).sum())
    finite = margins[np.isfinite(margins)]
    rng = np.random.default_rng(seed)
    rows_sampled = np.arange(m) if m <= sample else np.sort(rng.choice(m, sample, replace=False))
    words, contexts = np.asarray(embeddings.words, dtype=np.float64), np.asarray(embeddings.contexts, dtype=np.float64)
    words = words - words.mean(0)  # a common shift of all words changes no probability; minimisers have none
    proxy_words, proxy_contexts = prediction.spectrum.factors()
    sparse_norm = float(np.linalg.norm(prediction.sparse))
    return {
        "contexts": m,
        "prediction": "ntp-svm" if prediction.exact else "proxy",
        "SC1": collapse(embeddings, prediction, rows=rows_sampled),
        "SC2_words": gram_cosine(words, prediction.words),
        "SC2_contexts": gram_cosine(contexts, prediction.contexts),
        "SC2_words_proxy": gram_cosine(words, proxy_words),
        "SC2_contexts_proxy": gram_cosine(contexts, proxy_contexts),
        "SC3": distance**0.5 / sparse_norm if sparse_norm > 1e-12 else None,
        "SC4": float(exact_top.mean()),
        "SC4_mass": float(prior @ exact_top),
        "SC5": {
            "mean": float(finite.mean()) if len(finite) else None,
            "positive": float((finite > 0).mean()) if len(finite) else None,
            "quantiles": {str(q): float(np.quantile(finite, q)) for q in (0.0, 0.1, 0.5, 0.9, 1.0)}
            if len(finite)
            else {},
        },
        "SC6": {"excess": excess, "outside_mass": outside},
        "direction": inner / (norm * predicted_norm) ** 0.5 if norm > 0 and predicted_norm > 0 else None,
        "growth": inner / predicted_norm if predicted_norm > 0 else None,
        "word_norm": float(np.linalg.norm(words)),
        "context_norm": float(np.linalg.norm(contexts)),
        "pattern_words": pattern_similarity(words, prediction.words),
        "pattern_contexts": pattern_similarity(contexts, prediction.contexts),
        "support_size_mean": float(sizes.mean()),
    }
