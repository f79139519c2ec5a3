"""The data's own numbers: entropy bound, support sizes, Zipf of contexts, the mass still unseen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.special import logsumexp

from headscan.ntp.labels import Floats, SoftLabels
from headscan.ntp.prediction import gram_cosine, support_spectrum
from headscan.run import BadInput


def cross_entropy(logits: npt.NDArray[np.floating[Any]], labels: SoftLabels) -> float:
    """CE(L) = -Σ_j π_j Σ_z p_jz log softmax_z(ℓ_j) in nats, for logits [m, V]. CE >= H always.

    >>> labels = SoftLabels.of([[1, 1, 0]])
    >>> round(cross_entropy(np.zeros((1, 3)), labels) - labels.entropy(), 4)     # log 3 - log 2
    0.4055
    """
    logits = np.asarray(logits, dtype=np.float64)
    supports = labels.supports
    weight = labels.counts / labels.total
    return float(labels.prior @ logsumexp(logits, axis=1) - weight @ logits[supports.rows, supports.indices])


def zipf_exponent(occurrences: npt.NDArray[Any], *, smallest: float = 2.0) -> float | None:
    """Slope a of log count = c - a log rank, least squares over ranks spaced evenly in log; None under ten contexts.

    Contexts seen fewer than `smallest` times are left out: ties at one would flatten the tail.

    >>> round(zipf_exponent(1e6 / np.arange(1, 1001)), 3)
    1.0
    """
    counts = np.sort(np.asarray(occurrences, dtype=np.float64))[::-1]
    counts = counts[counts >= smallest]
    if len(counts) < 10:
        return None
    ranks = np.unique(np.geomspace(1, len(counts), 200).astype(np.int64))
    slope = np.polyfit(np.log(ranks), np.log(counts[ranks - 1]), 1)[0]
    return float(-slope)


def unseen_mass(labels: SoftLabels) -> tuple[float, Floats]:
    """Good and Turing's estimate of the mass of successors not yet seen: over all pairs, and for each context [m].

    The probability that the next occurrence of context j brings a token outside S_j is about (successors seen
    once)/n_j. It says how far the supports themselves are from settled. Range [0, 1].

    >>> unseen_mass(SoftLabels.of([[1, 3, 0], [0, 2, 2]]))[0]
    0.125
    """
    once = np.add.reduceat((labels.counts == 1).astype(np.float64), labels.supports.indptr[:-1])
    return float(once.sum() / labels.total), once / labels.occurrences


@dataclass(frozen=True)
class DataNumbers:
    """What the data say of themselves, before any model is looked at.

    Attributes:
        tokens: (context, next token) pairs n; vocabulary: V; tokens_that_follow: those of V that ever do.
        contexts: distinct ones m; supports: distinct ones; contexts_per_support, largest_support_class: how many share one.
        entropy_bound: H in nats a token.
        single_successor_share, single_successor_mass: contexts, and positions, that one token only follows, in [0, 1].
        support_size_mean, support_size_quantiles: tokens a support; full_supports: contexts followed by all of V.
        zipf_exponent: of the contexts' frequencies; unseen_mass: Good and Turing's, in [0, 1].
        in_support_dimension: dim F; fill: share of entries inside supports.
    """

    tokens: int
    vocabulary: int
    tokens_that_follow: int
    contexts: int
    supports: int
    contexts_per_support: float
    largest_support_class: int
    entropy_bound: float
    single_successor_share: float
    single_successor_mass: float
    support_size_mean: float
    support_size_quantiles: dict[str, float]
    full_supports: int
    zipf_exponent: float | None
    unseen_mass: float
    in_support_dimension: int
    fill: float


def describe(labels: SoftLabels) -> DataNumbers:
    """All of the data's own numbers.

    >>> describe(SoftLabels.of([[2, 2, 0], [0, 0, 4]])).single_successor_share
    0.5
    """
    supports = labels.supports
    sizes = supports.sizes
    distinct, _, multiplicity = supports.unique()
    single = sizes == 1
    used = np.bincount(supports.indices, minlength=labels.vocabulary) > 0
    return DataNumbers(
        tokens=round(labels.total), vocabulary=labels.vocabulary, tokens_that_follow=int(used.sum()),
        contexts=labels.contexts, supports=distinct.contexts,
        contexts_per_support=labels.contexts / distinct.contexts, largest_support_class=int(multiplicity.max()),
        entropy_bound=labels.entropy(), single_successor_share=float(single.mean()),
        single_successor_mass=float(labels.prior[single].sum()), support_size_mean=float(sizes.mean()),
        support_size_quantiles={str(q): float(np.quantile(sizes, q)) for q in (0.0, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)},
        full_supports=int((sizes == labels.vocabulary).sum()), zipf_exponent=zipf_exponent(labels.occurrences),
        unseen_mass=unseen_mass(labels)[0], in_support_dimension=int((sizes - 1).sum()),
        fill=len(supports.indices) / (labels.contexts * labels.vocabulary),
    )  # fmt: skip


# The Gram of the words is compared at up to this many tokens: beyond, its eigenvectors would cost more than the count.
_GRAM_TOKENS = 2048
# Multiplications that the Gram matrices of a bootstrap may take, half a minute of a core: 50 draws of 900 tokens.
_GRAM_WORK = 5e11


def _words(labels: SoftLabels) -> Floats | None:
    """Predicted words by the proxy, or None where there are too many tokens or nothing to separate."""
    if labels.vocabulary > _GRAM_TOKENS:
        return None
    try:
        return support_spectrum(labels.supports).factors()[0]
    except BadInput:
        return None


def _agreement(a: Floats | None, b: Floats | None) -> float | None:
    return None if a is None or b is None else gram_cosine(a, b)


@dataclass(frozen=True)
class ThresholdNumbers:
    """The data's numbers when successors seen fewer than `threshold` times do not count.

    `word_gram_cosine` compares the predicted Gram of the words with the one at the first threshold, in [0, 1].
    """

    threshold: float
    contexts: int
    supports: int
    kept_mass: float
    entropy_bound: float
    support_size_mean: float
    word_gram_cosine: float | None


def threshold_sweep(labels: SoftLabels, thresholds: Sequence[float] = (1, 2, 3, 5, 10)) -> list[ThresholdNumbers]:
    """The data's numbers at each threshold τ, as far as any successor is left.

    Where `word_gram_cosine` falls fast, the geometry hangs on tokens seen once, and a larger text would predict another.

    >>> [found.contexts for found in threshold_sweep(SoftLabels.of([[3, 1, 0], [0, 1, 1]]), (1, 2))]
    [2, 1]
    """
    found: list[ThresholdNumbers] = []
    first: Floats | None = None
    for threshold in thresholds:
        try:
            kept = labels.at_least(threshold)
        except BadInput:
            break
        words = _words(kept)
        first = words if first is None else first
        found.append(
            ThresholdNumbers(
                threshold=threshold,
                contexts=kept.contexts,
                supports=kept.supports.unique()[0].contexts,
                kept_mass=kept.total / labels.total,
                entropy_bound=kept.entropy(),
                support_size_mean=float(kept.supports.sizes.mean()),
                word_gram_cosine=_agreement(first, words),
            )
        )
    return found


@dataclass(frozen=True)
class BootstrapSpread:
    """Standard errors over `draws` resamples of `groups` of documents, and the cosine of the predicted Gram of words with
    that of all the data, its mean and least over the first `gram_draws` resamples, as many as half a minute has room for
    (None where there are too many tokens for it)."""

    groups: int
    draws: int
    entropy_bound_error: float
    contexts_error: float
    supports_error: float
    word_gram_cosine_mean: float | None
    word_gram_cosine_least: float | None
    gram_draws: int = 0


def bootstrap(groups: Sequence[sp.csr_matrix], *, draws: int = 50, seed: int = 0) -> BootstrapSpread:
    """Spread over documents: groups of documents are drawn with replacement, and everything is counted again.

    `groups` are count matrices [m, V] over the same contexts, one a group. The entropy of a resample is biased low (it
    repeats documents), so only its spread is told, no interval.
    """
    if len(groups) < 2:
        raise BadInput("A bootstrap needs at least two groups of documents.")
    rng = np.random.default_rng(seed)
    total = sum(groups[1:], groups[0]).tocsr()
    total.eliminate_zeros()
    followed = np.flatnonzero(np.asarray(total.sum(0)).ravel() > 0)
    parts = [group.tocsr()[:, followed] for group in groups]
    whole = _words(SoftLabels.of(_nonempty(total[:, followed])))
    # About 15 n³ multiplications an eigendecomposition of n tokens.
    affordable = int(min(draws, _GRAM_WORK / (15 * float(max(len(followed), 1)) ** 3))) if whole is not None else 0
    records = []
    for draw in range(draws):
        weights = rng.multinomial(len(groups), np.full(len(groups), 1 / len(groups)))
        drawn = sum(
            (float(w) * part for w, part in zip(weights, parts, strict=True) if w), sp.csr_matrix(parts[0].shape)
        )
        labels = SoftLabels.of(_nonempty(drawn))
        agreed = _agreement(whole, _words(labels)) if draw < affordable else None
        records.append((labels.entropy(), labels.contexts, labels.supports.unique()[0].contexts, agreed))
    cosines = [record[3] for record in records if record[3] is not None]
    return BootstrapSpread(
        groups=len(groups), draws=draws, entropy_bound_error=float(np.std([r[0] for r in records], ddof=1)),
        contexts_error=float(np.std([r[1] for r in records], ddof=1)),
        supports_error=float(np.std([r[2] for r in records], ddof=1)),
        word_gram_cosine_mean=float(np.mean(cosines)) if cosines else None,
        word_gram_cosine_least=float(np.min(cosines)) if cosines else None, gram_draws=len(cosines),
    )  # fmt: skip


def _nonempty(matrix: sp.csr_matrix) -> sp.csr_matrix:
    matrix = sp.csr_matrix(matrix)
    matrix.eliminate_zeros()
    return matrix[np.flatnonzero(np.diff(matrix.indptr))]
