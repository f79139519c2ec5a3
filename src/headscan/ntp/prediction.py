"""The geometry that the data alone predict: both components of the logits, embeddings, and their Gram matrices."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from headscan.ntp.arrays import CountsLike, Floats, Ints
from headscan.ntp.labels import SoftLabels
from headscan.ntp.proxy import SupportSpectrum, support_spectrum
from headscan.ntp.subspace import sparse_component
from headscan.ntp.svm import SvmSolution, svm

__all__ = ["Prediction", "predict"]


@dataclass(frozen=True, eq=False)
class Prediction:
    """What next-token prediction on `labels` converges to: logits ≈ L^in + R·L^mm with R growing.

    `sparse` is L^in on the stored entries [nnz]; `solution` the certified NTP-SVM, or None where only the proxy was
    asked for; `words` [V, r] and `contexts` [m, r] are the predicted embeddings up to rotation and scale, and
    `merged_words` [c, r] those of the classes of equal tokens (see `TokenClasses`; their Gram matrix says as much).
    `given` are those factors where they are already known.
    """

    labels: SoftLabels
    sparse: Floats
    solution: SvmSolution | None
    spectrum: SupportSpectrum
    given: tuple[Floats, Floats] | None = None

    @cached_property
    def _factors(self) -> tuple[Floats, Floats]:
        if self.given is not None:
            return self.given
        return self.spectrum.merged_factors() if self.solution is None else self.solution.merged_factors()

    def restricted(self, rows: Ints) -> Prediction:
        """The same prediction looked at through some of the contexts: nothing is solved again."""
        supports = self.labels.supports
        sizes = supports.sizes[rows]
        entries = np.repeat(supports.indptr[rows] - np.append(0, np.cumsum(sizes)[:-1]), sizes) + np.arange(sizes.sum())
        spectrum = replace(self.spectrum, inverse=self.spectrum.inverse[rows])
        factors = (self.merged_words, self.contexts[rows])
        return Prediction(self.labels.take(rows), self.sparse[entries], self.solution, spectrum, factors)

    @property
    def words(self) -> Floats:
        """W^mm [V, r]: predicted word embeddings. Made anew at each call: 8 V r bytes."""
        return self.spectrum.classes.tokens(self.merged_words)

    @property
    def merged_words(self) -> Floats:
        """W^mm [c, r] of the classes of equal tokens, times the root of how many they are."""
        return self._factors[0]

    @property
    def contexts(self) -> Floats:
        """H^mm [m, r]: predicted context embeddings; contexts with equal supports have equal rows."""
        return self._factors[1]

    @property
    def exact(self) -> bool:
        """True if the low-rank component is the certified solution, False if it is the spectral proxy."""
        return self.solution is not None

    def low_rank(self, rows: slice | Ints = slice(None)) -> Floats:
        """The predicted direction of P_⊥(L) for some contexts, float64 [rows, V], each row summing to zero."""
        classes = self.spectrum.classes
        found: Floats = (self.contexts[rows] @ (self.merged_words / classes.root[:, None]).T)[:, classes.of]
        return found


def predict(
    counts: CountsLike, *, gap: float = 1e-6, exact: bool = True, rank: int | None = None, **options: Any
) -> Prediction:
    """Predict the geometry from soft labels (anything `SoftLabels.of` reads, [contexts, vocabulary]).

    `exact` solves the NTP-SVM to the relative `gap`; without it the low-rank part is the spectral proxy with `rank`
    directions. `options` go to `svm`.

    >>> prediction = predict([[3, 1, 0], [1, 1, 0], [0, 0, 4]])
    >>> h = prediction.contexts
    >>> bool(np.allclose(h[0], h[1]))              # equal supports: the contexts collapse onto each other
    True
    """
    labels = SoftLabels.of(counts)
    solution = svm(labels.supports, gap=gap, **options) if exact else None
    return Prediction(labels, sparse_component(labels), solution, support_spectrum(labels.supports, rank))
