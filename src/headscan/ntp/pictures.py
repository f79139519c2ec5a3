"""What the page needs: a few contexts ordered by support for heat maps, words on axes, and a sample of logits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headscan.ntp.arrays import Floats, Ints
from headscan.ntp.prediction import Prediction
from headscan.ntp.result import AxisEnd, AxisWords, HeatContexts, WordCounts
from headscan.ntp.semantics import axes
from headscan.ntp.similarity import unit_rows
from headscan.ntp.subspace import in_support
from headscan.ntp.support_metrics import Embeddings

__all__ = ["HeatMap", "axis_words", "choose_heat", "cosines", "word_picture"]

Spell = Callable[[Sequence[int]], list[str]]
"""Tokens as people can see them."""


def cosines(X: Floats) -> npt.NDArray[np.float32]:
    """Cosines of all pairs of rows, float32 [n, n]."""
    unit = unit_rows(np.asarray(X, dtype=np.float64))
    return (unit @ unit.T).astype(np.float32)


@dataclass(frozen=True, eq=False)
class HeatMap:
    """Contexts `rows` int64 [s], ordered so that those of equal support stand together; `group` [s] numbers the supports."""

    rows: Ints
    group: Ints
    prediction: Prediction

    def in_words(self, context: Callable[[int], list[int]], spell: Spell) -> HeatContexts:
        """The words of the contexts and of their supports."""
        supports = self.prediction.labels.supports
        followers = []
        for row in self.rows:
            of_row = supports.indices[supports.indptr[row] : supports.indptr[row + 1]]
            followers.append(spell(of_row[:12].tolist()) + (["…"] if len(of_row) > 12 else []))
        return HeatContexts(
            contexts=[" ".join(spell(context(int(row)))) for row in self.rows],
            supports=followers,
            group=self.group.tolist(),
        )

    def scatter(self, found: Embeddings, part: Prediction, seed: int, *, most: int = 2000) -> npt.NDArray[np.float32]:
        """Predicted L^in against observed P_F(L) on at most `most` entries of supports of two tokens or more: [n, 2]."""
        supports = part.labels.supports
        several = np.flatnonzero(supports.sizes >= 2)
        if not len(several):
            return np.zeros((0, 2), dtype=np.float32)
        rows = np.sort(np.random.default_rng(seed).permutation(several)[:600])
        chosen, fewer = part.restricted(rows), Embeddings(found.words, found.contexts[rows], found.bias)
        observed = in_support(fewer.logits(), chosen.labels.supports)
        return np.stack([chosen.sparse, observed], axis=1)[:most].astype(np.float32)


def choose_heat(prediction: Prediction, *, supports: int = 10, each: int = 10, seed: int = 0) -> HeatMap:
    """Up to `supports` supports of two tokens or more that most contexts share, and up to `each` contexts of each.

    Where no such support is shared, the most frequent contexts stand in, each for itself.
    """
    labels = prediction.labels
    inverse = labels.supports.unique()[1]
    sizes = labels.supports.sizes
    eligible = np.bincount(inverse, weights=(sizes >= 2) & (sizes < labels.vocabulary))
    best = [kind for kind in np.argsort(-eligible, kind="stable")[:supports] if eligible[kind] >= 2]
    rows: list[Ints] = []
    prior = labels.prior
    for kind in best:
        members = np.flatnonzero(inverse == kind)
        rows.append(members[np.argsort(-prior[members], kind="stable")[:each]])
    if not rows:
        frequent = np.argsort(-prior, kind="stable")[: supports * 4]
        return HeatMap(frequent, np.arange(len(frequent)), prediction)
    group = np.concatenate([np.full(len(members), index) for index, members in enumerate(rows)])
    return HeatMap(np.concatenate(rows), group, prediction)


def word_picture(prediction: Prediction, spell: Spell, *, most: int = 500) -> WordCounts:
    """The most frequent next tokens with their spelling and counts, for the plane of two axes."""
    labels = prediction.labels
    counts = np.bincount(labels.supports.indices, weights=labels.counts, minlength=labels.vocabulary)
    order = np.argsort(-counts, kind="stable")[:most]
    order = order[counts[order] > 0]
    return WordCounts(order.tolist(), spell(order.tolist()), [float(c) for c in counts[order]])


def axis_words(words: Floats, spell: Spell, *, count: int = 8, ends: int = 10) -> list[AxisWords]:
    """The first axes of predicted words [V, r], with the spelling of the tokens at their ends."""

    def spelt(side: tuple[tuple[int, float], ...]) -> list[AxisEnd]:
        return [AxisEnd(token, at) for token, (_, at) in zip(spell([i for i, _ in side]), side, strict=True)]

    return [
        AxisWords(axis.index, axis.strength, spelt(axis.positive), spelt(axis.negative))
        for axis in axes(words, count=count, ends=ends)
    ]
