"""Word geometry read from the supports: semantic axes, analogies, and what is learned first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headscan.ntp.arrays import Floats
from headscan.ntp.labels import SoftLabels
from headscan.ntp.similarity import unit_rows
from headscan.run import BadInput

__all__ = ["SemanticAxis", "analogy", "axes", "early_spectrum", "neighbours"]


@dataclass(frozen=True)
class SemanticAxis:
    """One latent concept: its strength σ and the tokens at its two ends, strongest first (token id, coordinate)."""

    index: int
    strength: float
    positive: tuple[tuple[int, float], ...]
    negative: tuple[tuple[int, float], ...]


def axes(words: Floats, strengths: Floats | None = None, *, count: int = 8, ends: int = 10) -> list[SemanticAxis]:
    """The first `count` axes of words [V, r] (columns = axes, strongest first), each with its `ends` extreme tokens.

    The sign of an axis is arbitrary; here the end with the largest coordinate is called positive.

    >>> axes(np.array([[0.1], [-0.9], [0.5]]), count=1, ends=1)[0].positive
    ((1, 0.9),)
    """
    found = []
    for index in range(min(count, words.shape[1])):
        column = np.asarray(words[:, index], dtype=np.float64)
        column = column * (1.0 if column[np.abs(column).argmax()] >= 0 else -1.0)
        order = np.argsort(-column, kind="stable")
        strength = float(strengths[index]) if strengths is not None else float(np.linalg.norm(column))
        positive = tuple((int(i), float(column[i])) for i in order[:ends] if column[i] > 0)
        negative = tuple((int(i), float(column[i])) for i in order[::-1][:ends] if column[i] < 0)
        found.append(SemanticAxis(index, strength, positive, negative))
    return found


def neighbours(
    words: Floats, query: Floats, *, count: int = 10, exclude: Sequence[int] = ()
) -> list[tuple[int, float]]:
    """The tokens whose embeddings make the smallest angle with `query` [r]: (token id, cosine), best first."""
    norm = float(np.linalg.norm(query))
    if norm == 0:
        raise BadInput("The query has no direction: its words cancel out.")
    cosines = unit_rows(np.asarray(words, dtype=np.float64)) @ (np.asarray(query) / norm)
    cosines[list(exclude)] = -np.inf
    best = np.argsort(-cosines, kind="stable")[:count]
    return [(int(i), float(cosines[i])) for i in best if np.isfinite(cosines[i])]


def analogy(words: Floats, a: int, b: int, c: int, *, count: int = 5) -> list[tuple[int, float]]:
    """a is to b as c is to ?: neighbours of w_b - w_a + w_c among unit-norm words, the three themselves left out.

    >>> words = np.array([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 1.0], [-1.0, 0.0, 0.0]])
    >>> analogy(words, 0, 1, 2, count=1)[0][0]
    3
    """
    if not all(0 <= i < len(words) for i in (a, b, c)):
        raise BadInput(f"A token id of the analogy lies outside the vocabulary of {len(words)}.")
    unit = unit_rows(np.asarray(words, dtype=np.float64))
    return neighbours(words, unit[b] - unit[a] + unit[c], count=count, exclude=(a, b, c))


def early_spectrum(labels: SoftLabels, rank: int | None = None) -> tuple[Floats, Floats]:
    """(σ [r], words [V, r]) of the first cross-entropy gradient from zero: (P - 11ᵀ/V) weighted by the prior.

    These directions lead early in training; those of the centred supports take over late.
    """
    matrix = labels.matrix()
    matrix.data = matrix.data / labels.total
    prior, V = labels.prior, labels.vocabulary
    gram = np.asarray((matrix.T @ matrix).todense())
    cross = matrix.T @ (prior / V)
    gram += (prior @ prior) / V**2 - cross[:, None] - cross[None, :]
    values, vectors = np.linalg.eigh(gram)
    sigma = np.sqrt(np.maximum(values[::-1], 0.0))
    kept = int((sigma > 1e-9 * sigma[0]).sum()) if rank is None else rank
    return sigma[:kept], vectors[:, ::-1][:, :kept]
