"""The contents of the pictures of a prediction: contexts for heat maps, words on axes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from headscan.ntp.labels import Floats, Ints
from headscan.ntp.prediction import Prediction, axes, unit_rows
from headscan.ntp.result import AxisEnd, AxisWords, HeatContexts, WordCounts

Spell = Callable[[Sequence[int]], list[str]]
"""A function that returns tokens as people can read them."""

SHOWN_FOLLOWERS = 12
"""Tokens of a support that are spelt out."""


def cosines(X: Floats) -> npt.NDArray[np.float32]:
    """Return the cosines of all pairs of rows, float32 [n, n]."""
    unit = unit_rows(np.asarray(X, dtype=np.float64))
    return (unit @ unit.T).astype(np.float32)


@dataclass(frozen=True, eq=False)
class HeatMap:
    """Contexts `rows` int64 [s], ordered so that those of equal support stand together; `group` [s]
    numbers the supports.
    """

    rows: Ints
    group: Ints
    prediction: Prediction

    def in_words(self, contexts: npt.NDArray[np.integer[Any]], spell: Spell) -> HeatContexts:
        """Return the words of the contexts and of their supports."""
        supports = self.prediction.labels.supports
        followers = []
        for row in self.rows:
            token_ids = supports.indices[supports.indptr[row] : supports.indptr[row + 1]]
            spelt = spell(token_ids[:SHOWN_FOLLOWERS].tolist())
            if len(token_ids) > SHOWN_FOLLOWERS:
                spelt = [*spelt, "…"]
            followers.append(spelt)
        spelt_contexts = [" ".join(spell(contexts[row].tolist())) for row in self.rows]
        return HeatContexts(spelt_contexts, followers, self.group.tolist())


def choose_heat(prediction: Prediction, *, supports: int = 10, contexts_each: int = 10) -> HeatMap:
    """Return up to `supports` supports of two tokens or more that most contexts share, with up to
    `contexts_each` contexts of each. Where no such support is shared, the most frequent contexts
    are taken, each for itself.
    """
    labels = prediction.labels
    prior = labels.prior
    inverse = labels.supports.unique()[1]
    sizes = labels.supports.sizes
    eligible = (sizes >= 2) & (sizes < labels.vocabulary)
    sharers = np.bincount(inverse, weights=eligible)
    most_shared = np.argsort(-sharers, kind="stable")[:supports]

    rows = []
    for support in most_shared:
        if sharers[support] >= 2:
            members = np.flatnonzero(inverse == support)
            by_frequency = np.argsort(-prior[members], kind="stable")
            rows.append(members[by_frequency[:contexts_each]])
    if not rows:
        frequent = np.argsort(-prior, kind="stable")[: supports * 4]
        return HeatMap(frequent, np.arange(len(frequent)), prediction)
    group = [np.full(len(members), number) for number, members in enumerate(rows)]
    return HeatMap(np.concatenate(rows), np.concatenate(group), prediction)


def word_picture(prediction: Prediction, spell: Spell, *, most: int = 500) -> WordCounts:
    """Return the most frequent next tokens with their spelling and counts, for the plane of two
    axes.
    """
    labels = prediction.labels
    counts = np.bincount(
        labels.supports.indices, weights=labels.counts, minlength=labels.vocabulary
    )
    order = np.argsort(-counts, kind="stable")[:most]
    token_ids = order[counts[order] > 0]
    spelling = spell(token_ids.tolist())
    return WordCounts(token_ids.tolist(), spelling, [float(count) for count in counts[token_ids]])


def axis_words(words: Floats, spell: Spell, *, count: int = 8, ends: int = 10) -> list[AxisWords]:
    """Return the first axes of predicted words [V, r], with the tokens at their ends spelt out."""
    spelt_axes = []
    for axis in axes(words, count=count, ends=ends):
        positive = _spelt(axis.positive, spell)
        negative = _spelt(axis.negative, spell)
        spelt_axes.append(AxisWords(axis.index, axis.strength, positive, negative))
    return spelt_axes


def _spelt(end: Sequence[tuple[int, float]], spell: Spell) -> list[AxisEnd]:
    tokens = spell([token_id for token_id, _ in end])
    coordinates = [coordinate for _, coordinate in end]
    return [AxisEnd(token, at) for token, at in zip(tokens, coordinates, strict=True)]
