"""Support-aware collapse metrics SC1 to SC6: does a model have the geometry that its data predict?

Neural-collapse metrics take the next token for the class. Next-token prediction has no such
classes: a context is followed by many tokens, and what collapses is the set of contexts that share
a support, once projected on F⊥. Everything here runs over blocks of contexts, so memory stays at
block x V.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import logsumexp

from headscan.ntp.labels import Floats, Ints
from headscan.ntp.prediction import Prediction, gram_cosine, unit_rows
from headscan.ntp.subspace import in_support, out_of_support
from headscan.run import BadInput
from headscan.statistics.collapse import pair_sums

_BLOCK_ENTRIES = 1 << 22


@dataclass(frozen=True, eq=False)
class Embeddings:
    """A model's words W [V, d] and contexts H [m, d]; its logits are H Wᵀ + bias, with bias [V] or
    none.
    """

    words: npt.NDArray[np.floating[Any]]
    contexts: npt.NDArray[np.floating[Any]]
    bias: npt.NDArray[np.floating[Any]] | None = None

    def logits(self, rows: slice | Ints = slice(None)) -> Floats:
        """Logits of some contexts, float64 [rows, V]."""
        logits: Floats = (
            np.asarray(self.contexts[rows], dtype=np.float64)
            @ np.asarray(self.words, dtype=np.float64).T
        )
        return logits if self.bias is None else logits + self.bias


@dataclass(frozen=True)
class Spread:
    """How tight classes of contexts are: `cdnv` (0 = collapsed), cosines within a class (mean and
    least) and between.
    """

    cdnv: float | None
    same_cosine: float
    least_cosine: float
    other_cosine: float
    classes: int


def class_spread(X: Floats, classes: Ints, *, largest: int = 1024, seed: int = 0) -> Spread | None:
    """`cdnv` (see `headscan.statistics.collapse`) and cosines of rows X [n, d] for classes int [n];
    None without a pair. Only classes of two rows or more count, at most `largest` of them, drawn
    with `seed`.
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
    X = np.asarray(X[rows], dtype=np.float64)
    group = place[classes[rows]]
    order = np.argsort(group, kind="stable")
    X = X[order]
    group = group[order]
    starts = np.flatnonzero(np.r_[True, group[1:] != group[:-1]])
    size = np.diff(np.append(starts, len(group)))
    mean = np.add.reduceat(X, starts) / size[:, None]
    variance = np.add.reduceat(((X - mean[group]) ** 2).sum(1), starts) / size
    unit = unit_rows(X)
    total = np.add.reduceat(unit, starts)
    # Σ over ordered pairs of distinct rows of a class of their cosine = ‖Σ û‖² - Σ ‖û‖².
    lengths = np.add.reduceat((unit**2).sum(1), starts)
    within = ((total**2).sum(1) - lengths) / (size * (size - 1))
    some = (unit[start : start + min(n, 512)] for start, n in zip(starts, size, strict=True))
    least = min(float((rows @ rows.T).min()) for rows in some)
    everything = float((total.sum(0) ** 2).sum())
    pairs = len(group) ** 2 - float((size**2).sum())
    return Spread(
        cdnv=pair_sums(torch.from_numpy(mean), torch.from_numpy(variance)).of().cdnv,
        same_cosine=float(np.average(within, weights=size)),
        least_cosine=least,
        other_cosine=(everything - float((total**2).sum())) / pairs,
        classes=len(chosen),
    )


@dataclass(frozen=True)
class SubspaceCollapse:
    """SC1: how tight contexts of equal support lie, before and after projection on F⊥; None without
    two such classes.
    """

    before: Spread | None
    after: Spread | None


@dataclass(frozen=True)
class SupportMetrics:
    """How far a model is from the geometry that its data predict.

    Attributes:
        contexts: contexts compared; prediction: "ntp-svm" or "proxy", whichever they were compared
            with.
        SC1: subspace collapse (on a sample of contexts, for m V memory's sake).
        SC2_words, SC2_contexts: cosine of the Gram matrices with the predicted ones.
        SC3: ‖P_F(L) - L^in‖ / ‖L^in‖, 0 at the limit (None where every support is a single token).
        SC4: share of contexts whose k_j largest logits are exactly S_j.
        SC5: mean margin min over S_j - max off S_j; None where every support is full.
        SC6: CE - H in nats a token; outside_mass: the probability put outside the supports.
        direction: cosine of P_⊥(L), centred, with L^mm; growth: its length along L^mm over ‖L^mm‖
            (R).
    """

    contexts: int
    prediction: str
    SC1: SubspaceCollapse
    SC2_words: float | None
    SC2_contexts: float | None
    SC3: float | None
    SC4: float
    SC5: float | None
    SC6: float
    outside_mass: float
    direction: float | None
    growth: float | None


def collapse(
    embeddings: Embeddings, prediction: Prediction, *, rows: Ints | None = None
) -> SubspaceCollapse:
    """SC1, subspace collapse: how tight contexts with equal supports lie, before and after
    projection on F⊥.

    Before: the context embeddings themselves. After: P_⊥ of their logits, where the part that soft
    labels keep apart (log-odds inside the support) is taken out. Both are centred over the
    contexts: what they all share (the tokens that never follow anything) would make every cosine
    one. `rows` limits it to a sample of contexts.
    """
    supports = prediction.labels.supports
    rows = np.arange(supports.contexts) if rows is None else rows
    classes = supports.unique()[1][rows]
    before = np.asarray(embeddings.contexts[rows], dtype=np.float64)
    after = out_of_support(embeddings.logits(rows), supports.take(rows))
    return SubspaceCollapse(*(class_spread(X - X.mean(0), classes) for X in (before, after)))


class _Logits:
    """Sums over blocks of logits: what SC3 to SC6, the direction and its growth are made of."""

    def __init__(self, prediction: Prediction) -> None:
        self.prediction = prediction
        self.labels = prediction.labels
        self.logp = np.log(self.labels.probability)
        self.prior = self.labels.prior
        m = self.labels.contexts
        self.margins = np.full(m, np.nan)
        self.exact_top = np.zeros(m, dtype=bool)
        self.inner = self.norm = self.predicted_norm = self.excess = self.outside = (
            self.distance
        ) = 0.0

    def add(self, rows: slice, L: Floats) -> None:
        supports = self.labels.supports
        part = supports.take(np.arange(rows.start, rows.stop))
        entries = slice(supports.indptr[rows.start], supports.indptr[rows.stop])
        values = L[part.rows, part.indices]
        self.distance += float(
            ((in_support(values, part) - self.prediction.sparse[entries]) ** 2).sum()
        )
        logq = values - np.repeat(logsumexp(L, axis=1), part.sizes)
        self.excess += float(
            (self.labels.counts[entries] / self.labels.total) @ (self.logp[entries] - logq)
        )
        inside_mass = np.add.reduceat(np.exp(logq), part.indptr[:-1])
        self.outside += float(self.prior[rows] @ (1 - inside_mass))
        lowest = np.minimum.reduceat(values, part.indptr[:-1])
        masked = L.copy()
        masked[part.rows, part.indices] = -np.inf
        highest = masked.max(1)
        self.margins[rows] = np.where(np.isfinite(highest), lowest - highest, np.nan)
        self.exact_top[rows] = ~(self.margins[rows] <= 0)
        rest = out_of_support(L, part)
        target = self.prediction.low_rank(rows)
        self.inner += float((rest * target).sum())
        self.norm += float((rest**2).sum())
        self.predicted_norm += float((target**2).sum())


def support_metrics(
    embeddings: Embeddings, prediction: Prediction, *, sample: int = 4096, seed: int = 0
) -> SupportMetrics:
    """All of SC1 to SC6 and the alignments with the prediction; SC1 on at most `sample` contexts
    drawn with `seed`. Cost O(m V d), memory one block of logits. Raises `BadInput` where embeddings
    and data do not fit.
    """
    labels = prediction.labels
    V = labels.vocabulary
    m = labels.contexts
    if np.shape(embeddings.words)[0] != V or len(embeddings.contexts) != m:
        raise BadInput(
            f"The model has {len(embeddings.words)} words and {len(embeddings.contexts)} "
            f"contexts; the data {V}, {m}."
        )
    sums = _Logits(prediction)
    block = max(1, _BLOCK_ENTRIES // V)
    for start in range(0, m, block):
        rows = slice(start, min(start + block, m))
        sums.add(rows, embeddings.logits(rows))
    drawn = (
        np.arange(m)
        if m <= sample
        else np.sort(np.random.default_rng(seed).choice(m, sample, replace=False))
    )
    words = np.asarray(embeddings.words, dtype=np.float64)
    # a common shift of all words changes no probability; minimisers have none
    words = words - words.mean(0)
    sparse_norm = float(np.linalg.norm(prediction.sparse))
    both = sums.norm > 0 and sums.predicted_norm > 0
    margins = sums.margins[np.isfinite(sums.margins)]  # a full support has none
    return SupportMetrics(
        contexts=m,
        prediction="ntp-svm" if prediction.exact else "proxy",
        SC1=collapse(embeddings, prediction, rows=drawn),
        SC2_words=gram_cosine(words, prediction.words),
        SC2_contexts=gram_cosine(
            np.asarray(embeddings.contexts, dtype=np.float64), prediction.contexts
        ),
        SC3=sums.distance**0.5 / sparse_norm if sparse_norm > 1e-12 else None,
        SC4=float(sums.exact_top.mean()),
        SC5=float(margins.mean()) if len(margins) else None,
        SC6=sums.excess,
        outside_mass=sums.outside,
        direction=sums.inner / (sums.norm * sums.predicted_norm) ** 0.5 if both else None,
        growth=sums.inner / sums.predicted_norm if sums.predicted_norm > 0 else None,
    )
