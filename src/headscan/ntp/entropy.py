"""The data's own numbers: entropy bound, support sizes, Zipf of contexts, the mass still unseen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp

from headscan.ntp.arrays import Floats
from headscan.ntp.labels import SoftLabels

__all__ = ["DataNumbers", "cross_entropy", "describe", "unseen_mass", "zipf_exponent"]


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
        tokens=round(labels.total),
        vocabulary=labels.vocabulary,
        tokens_that_follow=int(used.sum()),
        contexts=labels.contexts,
        supports=distinct.contexts,
        contexts_per_support=labels.contexts / distinct.contexts,
        largest_support_class=int(multiplicity.max()),
        entropy_bound=labels.entropy(),
        single_successor_share=float(single.mean()),
        single_successor_mass=float(labels.prior[single].sum()),
        support_size_mean=float(sizes.mean()),
        support_size_quantiles={str(q): float(np.quantile(sizes, q)) for q in (0.0, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)},
        full_supports=int((sizes == labels.vocabulary).sum()),
        zipf_exponent=zipf_exponent(labels.occurrences),
        unseen_mass=unseen_mass(labels)[0],
        in_support_dimension=int((sizes - 1).sum()),
        fill=len(supports.indices) / (labels.contexts * labels.vocabulary),
    )
