"""The data's own numbers: entropy bound, support sizes, Zipf of contexts, the mass still unseen."""

from collections.abc import Sequence
from contextlib import suppress
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
    return float(
        labels.prior @ logsumexp(logits, axis=1) - weight @ logits[supports.rows, supports.indices]
    )


def unseen_mass(labels: SoftLabels) -> float:
    """Good and Turing's estimate of the mass of successors not yet seen, over all pairs, in [0, 1].

    The probability that the next occurrence of a context brings a token outside its support is
    about (successors seen once)/n. It says how far the supports themselves are from settled.

    >>> unseen_mass(SoftLabels.of([[1, 3, 0], [0, 2, 2]]))
    0.125
    """
    return float((labels.counts == 1).sum() / labels.total)


@dataclass(frozen=True)
class DataNumbers:
    """What the data say of themselves, before any model is looked at; shares are in [0, 1]."""

    tokens: int  # (context, next token) pairs n
    vocabulary: int
    contexts: int  # distinct ones m
    supports: int  # distinct ones
    contexts_per_support: float  # how many share one on average
    entropy_bound: float  # H in nats a token
    single_successor_share: float  # of the contexts that one token only follows
    support_size_mean: float  # tokens a support
    unseen_mass: float  # Good and Turing's


def describe(labels: SoftLabels) -> DataNumbers:
    """All of the data's own numbers.

    >>> describe(SoftLabels.of([[2, 2, 0], [0, 0, 4]])).single_successor_share
    0.5
    """
    sizes = labels.supports.sizes
    distinct = labels.supports.unique()[0].contexts
    return DataNumbers(
        tokens=round(labels.total),
        vocabulary=labels.vocabulary,
        contexts=labels.contexts,
        supports=distinct,
        contexts_per_support=labels.contexts / distinct,
        entropy_bound=labels.entropy(),
        single_successor_share=float((sizes == 1).mean()),
        support_size_mean=float(sizes.mean()),
        unseen_mass=unseen_mass(labels),
    )


# The Gram of the words is compared at up to this many tokens: beyond, its eigenvectors would cost
# more than the count.
_GRAM_TOKENS = 2048


@dataclass(frozen=True)
class ThresholdNumbers:
    """The data's numbers when successors seen fewer than `threshold` times do not count.

    `word_gram_cosine` compares the predicted Gram of the words with the one at the first threshold,
    in [0, 1].
    """

    threshold: float
    contexts: int
    supports: int
    kept_mass: float
    entropy_bound: float
    support_size_mean: float
    word_gram_cosine: float | None


def threshold_sweep(
    labels: SoftLabels, thresholds: Sequence[float] = (1, 2, 3, 5, 10)
) -> list[ThresholdNumbers]:
    """The data's numbers at each threshold τ, as far as any successor is left.

    Where `word_gram_cosine` falls fast, the geometry hangs on tokens seen once, and a larger text
    would predict another.

    >>> [row.contexts for row in threshold_sweep(SoftLabels.of([[3, 1, 0], [0, 1, 1]]), (1, 2))]
    [2, 1]
    """
    rows: list[ThresholdNumbers] = []
    first: Floats | None = None
    for threshold in thresholds:
        try:
            kept = labels.at_least(threshold)
        except BadInput:
            break
        cosine = None
        if labels.vocabulary <= _GRAM_TOKENS:
            with suppress(BadInput):  # nothing to separate
                words = support_spectrum(kept.supports).factors()[0]
                first = words if first is None else first
                cosine = gram_cosine(first, words)
        rows.append(
            ThresholdNumbers(
                threshold,
                kept.contexts,
                kept.supports.unique()[0].contexts,
                kept.total / labels.total,
                kept.entropy(),
                float(kept.supports.sizes.mean()),
                cosine,
            )
        )
    return rows


@dataclass(frozen=True)
class BootstrapSpread:
    """Standard errors over `draws` resamples of `groups` of documents."""

    groups: int
    draws: int
    entropy_bound_error: float
    contexts_error: float
    supports_error: float


def bootstrap(
    groups: Sequence[sp.csr_matrix], *, draws: int = 50, seed: int = 0
) -> BootstrapSpread:
    """Spread over documents: groups of documents are drawn with replacement, and everything is
    counted again.

    `groups` are count matrices [m, V] over the same contexts, one a group. The entropy of a
    resample is biased low (it repeats documents), so only its spread is given, no interval.
    """
    if len(groups) < 2:
        raise BadInput("A bootstrap needs at least two groups of documents.")
    rng = np.random.default_rng(seed)
    records = []
    for _ in range(draws):
        weights = rng.multinomial(len(groups), np.full(len(groups), 1 / len(groups)))
        parts = (float(w) * part for w, part in zip(weights, groups, strict=True) if w)
        drawn = sp.csr_matrix(sum(parts, sp.csr_matrix(groups[0].shape)))
        drawn.eliminate_zeros()
        labels = SoftLabels.of(drawn[np.flatnonzero(np.diff(drawn.indptr))])
        records.append((labels.entropy(), labels.contexts, labels.supports.unique()[0].contexts))
    entropy, contexts, supports = np.std(
        np.array(records, dtype=np.float64), axis=0, ddof=1
    ).tolist()
    return BootstrapSpread(len(groups), draws, entropy, contexts, supports)
