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
_ROWS_A_CLASS = 512  # rows of a class whose least cosine is looked for
_SMALL_NORM = 1e-12


@dataclass(frozen=True, eq=False)
class Embeddings:
    """A model's words W [V, d] and contexts H [m, d]; its logits are H Wᵀ + bias, with bias [V] or
    none.
    """

    words: npt.NDArray[np.floating[Any]]
    contexts: npt.NDArray[np.floating[Any]]
    bias: npt.NDArray[np.floating[Any]] | None = None

    def logits(self, rows: slice | Ints = slice(None)) -> Floats:
        """Return the logits of some contexts, float64 [rows, V]."""
        contexts = np.asarray(self.contexts[rows], dtype=np.float64)
        words = np.asarray(self.words, dtype=np.float64)
        logits: Floats = contexts @ words.T
        return logits if self.bias is None else logits + self.bias


@dataclass(frozen=True)
class Spread:
    """The spread of classes of contexts: `cdnv` (0 = collapsed), cosines within a class (mean and
    least) and between classes.
    """

    cdnv: float | None
    same_cosine: float
    least_cosine: float
    other_cosine: float
    classes: int


def class_spread(X: Floats, classes: Ints, *, largest: int = 1024, seed: int = 0) -> Spread | None:
    """Return `cdnv` (see `headscan.statistics.collapse`) and cosines of rows X [n, d] for classes
    int [n]; None without a pair.

    Only classes of two rows or more count, at most `largest` of them, drawn with `seed`.
    """
    counts = np.bincount(classes)
    compared = np.flatnonzero(counts >= 2)
    if len(compared) < 2:
        return None
    if len(compared) > largest:
        rng = np.random.default_rng(seed)
        compared = np.sort(rng.choice(compared, largest, replace=False))
    X, group = _sorted_by_class(X, classes, compared)

    starts = np.flatnonzero(np.r_[True, group[1:] != group[:-1]])
    size = np.diff(np.append(starts, len(group)))
    mean = np.add.reduceat(X, starts) / size[:, None]
    variance = np.add.reduceat(((X - mean[group]) ** 2).sum(1), starts) / size
    unit = unit_rows(X)
    total = np.add.reduceat(unit, starts)
    # Σ over ordered pairs of distinct rows of a class of their cosine = ‖Σ û‖² - Σ ‖û‖².
    lengths = np.add.reduceat((unit**2).sum(1), starts)
    within = ((total**2).sum(1) - lengths) / (size * (size - 1))
    over_all_pairs = float((total.sum(0) ** 2).sum())
    over_pairs_of_classes = float((total**2).sum())
    pairs = len(group) ** 2 - float((size**2).sum())
    return Spread(
        cdnv=pair_sums(torch.from_numpy(mean), torch.from_numpy(variance)).of().cdnv,
        same_cosine=float(np.average(within, weights=size)),
        least_cosine=_least_cosine(np.asarray(unit, dtype=np.float64), starts, size),
        other_cosine=(over_all_pairs - over_pairs_of_classes) / pairs,
        classes=len(compared),
    )


def _sorted_by_class(X: Floats, classes: Ints, compared: Ints) -> tuple[Floats, Ints]:
    """Return the rows of some classes, class by class, and the number of each row's class."""
    number = np.full(int(classes.max()) + 1, -1)
    number[compared] = np.arange(len(compared))
    rows = np.flatnonzero(number[classes] >= 0)
    group = number[classes[rows]]
    order = np.argsort(group, kind="stable")
    return np.asarray(X[rows], dtype=np.float64)[order], group[order]


def _least_cosine(unit: Floats, starts: Ints, sizes: Ints) -> float:
    """Return the least cosine of two of the first 512 rows of a class, over all classes."""
    least = np.inf
    for start, size in zip(starts, sizes, strict=True):
        rows = unit[start : start + min(size, _ROWS_A_CLASS)]
        least = min(least, float((rows @ rows.T).min()))
    return float(least)


@dataclass(frozen=True)
class SubspaceCollapse:
    """SC1: the spread of contexts of equal support, before and after projection on F⊥; None without
    two such classes.
    """

    before: Spread | None
    after: Spread | None


@dataclass(frozen=True)
class SupportMetrics:
    """The distance of a model from the geometry that its data predict.

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
    """Return SC1, subspace collapse: the spread of contexts with equal supports, before and after
    projection on F⊥.

    Before: the context embeddings themselves. After: P_⊥ of their logits, where the part that soft
    labels keep apart (log-odds inside the support) is taken out. Both are centred over the
    contexts: what they all share (the tokens that never follow anything) would make every cosine
    one. `rows` limits it to a sample of contexts.
    """
    supports = prediction.labels.supports
    if rows is None:
        rows = np.arange(supports.contexts)
    classes = supports.unique()[1][rows]
    before = np.asarray(embeddings.contexts[rows], dtype=np.float64)
    after = out_of_support(embeddings.logits(rows), supports.take(rows))
    return SubspaceCollapse(
        before=class_spread(before - before.mean(0), classes),
        after=class_spread(after - after.mean(0), classes),
    )


class _LogitSums:
    """Sums over blocks of logits, of which SC3 to SC6, the direction and its growth are made.

    Attributes:
        margins: least logit on the support less the largest off it, by context; NaN for a full
            support.
        exact_top: whether the largest logits of a context are those of its support.
        inner: inner product of P_⊥(L), centred, with the predicted direction.
        norm, predicted_norm: squared norms of both.
        excess: CE - H in nats a token.
        outside: probability outside the supports.
        distance: ‖P_F(L) - L^in‖².
    """

    def __init__(self, prediction: Prediction) -> None:
        self.prediction = prediction
        self.labels = prediction.labels
        self.log_probability = np.log(self.labels.probability)
        self.prior = self.labels.prior
        self.margins = np.full(self.labels.contexts, np.nan)
        self.exact_top = np.zeros(self.labels.contexts, dtype=bool)
        self.inner = 0.0
        self.norm = 0.0
        self.predicted_norm = 0.0
        self.excess = 0.0
        self.outside = 0.0
        self.distance = 0.0

    def add(self, rows: slice, L: Floats) -> None:
        """Add the logits [rows, V] of some contexts."""
        supports = self.labels.supports
        part = supports.take(np.arange(rows.start, rows.stop))
        entries = slice(supports.indptr[rows.start], supports.indptr[rows.stop])
        values = L[part.rows, part.indices]

        differences = in_support(values, part) - self.prediction.sparse[entries]
        self.distance += float((differences**2).sum())
        log_q = values - np.repeat(logsumexp(L, axis=1), part.sizes)
        weight = self.labels.counts[entries] / self.labels.total
        self.excess += float(weight @ (self.log_probability[entries] - log_q))
        inside_mass = np.add.reduceat(np.exp(log_q), part.indptr[:-1])
        self.outside += float(self.prior[rows] @ (1 - inside_mass))

        lowest = np.minimum.reduceat(values, part.indptr[:-1])
        off_support = L.copy()
        off_support[part.rows, part.indices] = -np.inf
        highest = off_support.max(1)
        self.margins[rows] = np.where(np.isfinite(highest), lowest - highest, np.nan)
        self.exact_top[rows] = ~(self.margins[rows] <= 0)

        growing = out_of_support(L, part)
        predicted = self.prediction.low_rank(rows)
        self.inner += float((growing * predicted).sum())
        self.norm += float((growing**2).sum())
        self.predicted_norm += float((predicted**2).sum())


def support_metrics(
    embeddings: Embeddings, prediction: Prediction, *, sample: int = 4096, seed: int = 0
) -> SupportMetrics:
    """Return SC1 to SC6 and the alignments with the prediction; SC1 on at most `sample` contexts
    drawn with `seed`.

    Cost O(m V d), memory one block of logits. Raises `BadInput` where embeddings and data do not
    fit.
    """
    labels = prediction.labels
    V = labels.vocabulary
    m = labels.contexts
    if np.shape(embeddings.words)[0] != V or len(embeddings.contexts) != m:
        raise BadInput(
            f"The model has {len(embeddings.words)} words and {len(embeddings.contexts)} "
            f"contexts; the data {V}, {m}."
        )
    sums = _LogitSums(prediction)
    block = max(1, _BLOCK_ENTRIES // V)
    for start in range(0, m, block):
        rows = slice(start, min(start + block, m))
        sums.add(rows, embeddings.logits(rows))

    sampled = np.arange(m)
    if m > sample:
        sampled = np.sort(np.random.default_rng(seed).choice(m, sample, replace=False))
    words = np.asarray(embeddings.words, dtype=np.float64)
    # A common shift of all words changes no probability; minimisers have none.
    words = words - words.mean(0)
    contexts = np.asarray(embeddings.contexts, dtype=np.float64)
    sparse_norm = float(np.linalg.norm(prediction.sparse))
    margins = sums.margins[np.isfinite(sums.margins)]  # a full support has none
    direction = None
    if sums.norm > 0 and sums.predicted_norm > 0:
        direction = sums.inner / (sums.norm * sums.predicted_norm) ** 0.5
    return SupportMetrics(
        contexts=m,
        prediction="ntp-svm" if prediction.exact else "proxy",
        SC1=collapse(embeddings, prediction, rows=sampled),
        SC2_words=gram_cosine(words, prediction.words),
        SC2_contexts=gram_cosine(contexts, prediction.contexts),
        SC3=sums.distance**0.5 / sparse_norm if sparse_norm > _SMALL_NORM else None,
        SC4=float(sums.exact_top.mean()),
        SC5=float(margins.mean()) if len(margins) else None,
        SC6=sums.excess,
        outside_mass=sums.outside,
        direction=direction,
        growth=sums.inner / sums.predicted_norm if sums.predicted_norm > 0 else None,
    )
