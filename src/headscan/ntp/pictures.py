"""What the page needs: a few contexts ordered by support for heat maps, words on axes, and a sample of logits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from headscan.ntp.prediction import Prediction
from headscan.ntp.similarity import unit_rows
from headscan.ntp.subspace import in_support
from headscan.ntp.support_metrics import Embeddings

__all__ = ["Heat", "choose_heat", "cosines", "word_picture"]


def cosines(X: np.ndarray) -> np.ndarray:
    """Cosines of all pairs of rows, float32 [n, n]."""
    unit = unit_rows(np.asarray(X, dtype=np.float64))
    return (unit @ unit.T).astype(np.float32)


@dataclass(frozen=True, eq=False)
class Heat:
    """Contexts `rows` int64 [s], ordered so that those of equal support stand together; `group` [s] numbers the supports."""

    rows: np.ndarray
    group: np.ndarray
    prediction: Prediction

    def document(self, context: Callable[[int], list[int]], spell: Callable[[Any], list[str]]) -> dict[str, Any]:
        """The words of the contexts and of their supports, JSON-able."""
        supports = self.prediction.labels.supports
        followers = []
        for row in self.rows:
            of_row = supports.indices[supports.indptr[row] : supports.indptr[row + 1]]
            followers.append(spell(of_row[:12]) + (["…"] if len(of_row) > 12 else []))
        return {
            "contexts": [" ".join(spell(context(int(row)))) for row in self.rows],
            "supports": followers,
            "group": self.group.tolist(),
        }

    def scatter(self, found: Embeddings, part: Prediction, seed: int, *, most: int = 2000) -> np.ndarray:
        """Predicted L^in against observed P_F(L) on at most `most` entries of supports of two tokens or more: [n, 2]."""
        supports = part.labels.supports
        several = np.flatnonzero(supports.sizes >= 2)
        if not len(several):
            return np.zeros((0, 2), dtype=np.float32)
        rows = np.sort(np.random.default_rng(seed).permutation(several)[:600])
        chosen, fewer = part.restricted(rows), Embeddings(found.words, found.contexts[rows], found.bias)
        observed = in_support(fewer.logits(), chosen.labels.supports)
        return np.stack([chosen.sparse, observed], axis=1)[:most].astype(np.float32)


def choose_heat(prediction: Prediction, *, supports: int = 10, each: int = 10, seed: int = 0) -> Heat:
    """Up to `supports` supports of two tokens or more that most contexts share, and up to `each` contexts of each.

    Where no such support is shared, the most frequent contexts stand in, each for itself.
    """
    labels = prediction.labels
    inverse = labels.supports.unique()[1]
    sizes = labels.supports.sizes
    eligible = np.bincount(inverse, weights=(sizes >= 2) & (sizes < labels.vocabulary))
    best = [kind for kind in np.argsort(-eligible, kind="stable")[:supports] if eligible[kind] >= 2]
    rows: list[np.ndarray] = []
    prior = labels.prior
    for kind in best:
        members = np.flatnonzero(inverse == kind)
        rows.append(members[np.argsort(-prior[members], kind="stable")[:each]])
    if not rows:
        frequent = np.argsort(-prior, kind="stable")[: supports * 4]
        return Heat(frequent, np.arange(len(frequent)), prediction)
    group = np.concatenate([np.full(len(members), index) for index, members in enumerate(rows)])
    return Heat(np.concatenate(rows), group, prediction)


def word_picture(prediction: Prediction, spell: Callable[[Any], list[str]], *, most: int = 500) -> dict[str, Any]:
    """The most frequent next tokens with their spelling and counts, for the plane of two axes."""
    labels = prediction.labels
    counts = np.bincount(labels.supports.indices, weights=labels.counts, minlength=labels.vocabulary)
    order = np.argsort(-counts, kind="stable")[:most]
    order = order[counts[order] > 0]
    return {"id": order.tolist(), "tokens": spell(order), "counts": [float(c) for c in counts[order]]}
