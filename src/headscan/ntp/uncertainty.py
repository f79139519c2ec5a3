"""How settled the data's own numbers are: successors not yet seen, rare ones, and other documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from headscan.ntp.arrays import Floats
from headscan.ntp.labels import SoftLabels
from headscan.ntp.proxy import support_spectrum
from headscan.ntp.similarity import gram_cosine
from headscan.run import BadInput

__all__ = ["BootstrapSpread", "ThresholdNumbers", "bootstrap", "threshold_sweep"]

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
        groups=len(groups),
        draws=draws,
        entropy_bound_error=float(np.std([r[0] for r in records], ddof=1)),
        contexts_error=float(np.std([r[1] for r in records], ddof=1)),
        supports_error=float(np.std([r[2] for r in records], ddof=1)),
        word_gram_cosine_mean=float(np.mean(cosines)) if cosines else None,
        word_gram_cosine_least=float(np.min(cosines)) if cosines else None,
        gram_draws=len(cosines),
    )


def _nonempty(matrix: sp.csr_matrix) -> sp.csr_matrix:
    matrix = sp.csr_matrix(matrix)
    matrix.eliminate_zeros()
    return matrix[np.flatnonzero(np.diff(matrix.indptr))]
