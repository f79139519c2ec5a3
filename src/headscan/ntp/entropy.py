"""Numbers of the data alone: entropy bound, support sizes, unseen mass, and their uncertainty."""

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
    """Return CE(L) = -Σ_j π_j Σ_z p_jz log softmax_z(ℓ_j) in nats, for logits [m, V].

    CE >= H always.

    >>> labels = SoftLabels.of([[1, 1, 0]])
    >>> round(cross_entropy(np.zeros((1, 3)), labels) - labels.entropy(), 4)     # log 3 - log 2
    0.4055
    """
    logits = np.asarray(logits, dtype=np.float64)
    supports = labels.supports
    weight = labels.counts / labels.total
    log_sums = labels.prior @ logsumexp(logits, axis=1)
    return float(log_sums - weight @ logits[supports.rows, supports.indices])


def unseen_mass(labels: SoftLabels) -> float:
    """Return Good and Turing's estimate of the mass of successors not yet seen, in [0, 1].

    The probability that the next occurrence of a context brings a token outside its support is
    about (successors seen once)/n. It says how far the supports are from settled.

    >>> unseen_mass(SoftLabels.of([[1, 3, 0], [0, 2, 2]]))
    0.125
    """
    return float((labels.counts == 1).sum() / labels.total)


@dataclass(frozen=True)
class DataNumbers:
    """The numbers of the data alone, before any model is read; shares are in [0, 1]."""

    tokens: int  # (context, next token) pairs n
    vocabulary: int
    contexts: int  # distinct contexts m
    supports: int  # distinct supports
    contexts_per_support: float  # contexts that share a support, on average
    entropy_bound: float  # H in nats a token
    single_successor_share: float  # of the contexts that only one token follows
    support_size_mean: float  # tokens a support
    unseen_mass: float  # Good and Turing's


def describe(labels: SoftLabels) -> DataNumbers:
    """Return all numbers of the data alone.

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


_GRAM_TOKENS = 2048
"""The Gram matrix of the words is compared at up to this many tokens. Beyond, its eigenvectors
would cost more than the count.
"""


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
    """Return the data's numbers at each threshold τ at which a successor is left.

    Where `word_gram_cosine` falls fast, the geometry depends on tokens seen once, and a larger text
    would predict a different one.

    >>> [row.contexts for row in threshold_sweep(SoftLabels.of([[3, 1, 0], [0, 1, 1]]), (1, 2))]
    [2, 1]
    """
    rows: list[ThresholdNumbers] = []
    first_words: Floats | None = None
    for threshold in thresholds:
        try:
            frequent = labels.at_least(threshold)
        except BadInput:
            break
        cosine = None
        if labels.vocabulary <= _GRAM_TOKENS:
            with suppress(BadInput):  # nothing to separate
                words, _ = support_spectrum(frequent.supports).factors()
                if first_words is None:
                    first_words = words
                cosine = gram_cosine(first_words, words)
        rows.append(
            ThresholdNumbers(
                threshold=threshold,
                contexts=frequent.contexts,
                supports=frequent.supports.unique()[0].contexts,
                kept_mass=frequent.total / labels.total,
                entropy_bound=frequent.entropy(),
                support_size_mean=float(frequent.supports.sizes.mean()),
                word_gram_cosine=cosine,
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
    """Return the spread over documents: groups of documents are drawn with replacement, and
    everything is counted again.

    `groups` are count matrices [m, V] over the same contexts, one a group. The entropy of a
    resample is biased low (it repeats documents), so only its spread is given, no interval.
    """
    if len(groups) < 2:
        raise BadInput("A bootstrap needs at least two groups of documents.")
    rng = np.random.default_rng(seed)
    equal_shares = np.full(len(groups), 1 / len(groups))
    records = []
    for _ in range(draws):
        weights = rng.multinomial(len(groups), equal_shares)
        drawn = sp.csr_matrix(groups[0].shape)
        for weight, counts in zip(weights, groups, strict=True):
            if weight:
                drawn = drawn + float(weight) * counts
        drawn = sp.csr_matrix(drawn)
        drawn.eliminate_zeros()
        labels = SoftLabels.of(drawn[np.flatnonzero(np.diff(drawn.indptr))])
        records.append((labels.entropy(), labels.contexts, labels.supports.unique()[0].contexts))
    spreads = np.std(np.array(records, dtype=np.float64), axis=0, ddof=1)
    entropy, contexts, supports = spreads.tolist()
    return BootstrapSpread(len(groups), draws, entropy, contexts, supports)
