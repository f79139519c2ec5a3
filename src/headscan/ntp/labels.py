"""Soft labels: for each context, how often each token followed it, as the rows of a sparse matrix."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from headscan.ntp.arrays import CountsLike, Floats, Ints
from headscan.ntp.supports import Supports
from headscan.run import BadInput

__all__ = ["SoftLabels"]


@dataclass(frozen=True, eq=False)
class SoftLabels:
    """How often each token followed each context: CSR [contexts, vocabulary] of positive counts (or masses).

    From it come the prior π_j = n_j / n, the soft label p_jz = n_jz / n_j and the support S_j = {z : n_jz > 0}.
    (The published text defines p with 1/n in place of 1/(n π_j); with that p would not sum to one.)

    >>> labels = SoftLabels.of([[3, 1, 0], [0, 0, 4]])
    >>> labels.prior.tolist(), labels.probability.tolist()
    ([0.5, 0.5], [0.75, 0.25, 1.0])
    >>> round(labels.entropy(), 6)      # 0.5 * H(3/4, 1/4) + 0.5 * 0, in nats
    0.281168
    """

    supports: Supports
    counts: Floats

    @classmethod
    def of(cls, counts: CountsLike) -> SoftLabels:
        """From a `SoftLabels`, or a sparse or dense matrix of counts [contexts, vocabulary]. Rows may not be empty."""
        if isinstance(counts, cls):
            return counts
        matrix = sp.csr_matrix(counts, dtype=np.float64, copy=True)  # what follows works in place
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        if matrix.nnz and (not np.isfinite(matrix.data).all() or matrix.data.min() < 0):
            raise BadInput("Counts of next tokens must be finite and not negative.")
        return cls(Supports.of(matrix), matrix.data)

    @classmethod
    def from_probability(cls, probability: Floats, prior: Floats | None = None) -> SoftLabels:
        """From soft labels P [m, V] whose rows sum to one, and a prior π [m] (uniform if none).

        >>> SoftLabels.from_probability(np.array([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])).prior.tolist()
        [0.5, 0.5]
        """
        probability = np.asarray(probability, dtype=np.float64)
        if not np.allclose(probability.sum(1), 1.0, atol=1e-9):
            raise BadInput("Every row of the soft labels must sum to one.")
        prior = np.full(len(probability), 1.0 / len(probability)) if prior is None else np.asarray(prior)
        return cls.of(probability * prior[:, None])

    @property
    def contexts(self) -> int:
        """m, the number of distinct contexts."""
        return self.supports.contexts

    @property
    def vocabulary(self) -> int:
        """V, the number of tokens."""
        return self.supports.vocabulary

    @property
    def total(self) -> float:
        """n, the number of (context, next token) pairs counted."""
        return float(self.counts.sum())

    @property
    def occurrences(self) -> Floats:
        """n_j, how often each context was seen, float64 [m]."""
        return np.add.reduceat(self.counts, self.supports.indptr[:-1])

    @property
    def prior(self) -> Floats:
        """π_j = n_j / n, float64 [m]; sums to one."""
        return self.occurrences / self.total

    @property
    def probability(self) -> Floats:
        """p_jz for the stored entries, float64 [nnz]; each row sums to one."""
        return self.counts / np.repeat(self.occurrences, self.supports.sizes)

    def matrix(self) -> sp.csr_matrix:
        """The counts as scipy CSR [m, V]."""
        shape = (self.contexts, self.vocabulary)
        return sp.csr_matrix((self.counts, self.supports.indices, self.supports.indptr), shape=shape)

    def dense(self) -> Floats:
        """The soft labels P as a dense float64 array [m, V]."""
        dense = np.zeros((self.contexts, self.vocabulary))
        dense[self.supports.rows, self.supports.indices] = self.probability
        return dense

    def entropy(self) -> float:
        """H = -Σ_j π_j Σ_z p_jz log p_jz in nats: the lower bound of the cross-entropy of any model of this order.

        No finite logits reach it unless every support is the whole vocabulary. Range [0, log V]. O(nnz).
        """
        weight = self.counts / self.total
        return float(-(weight * np.log(self.probability)).sum()) + 0.0

    def take(self, rows: Ints) -> SoftLabels:
        """The labels of the chosen contexts, in that order (the prior is renormalised over them)."""
        return SoftLabels.of(self.matrix()[rows])

    def at_least(self, threshold: float) -> SoftLabels:
        """Drop successors seen fewer than `threshold` times, and contexts left with none.

        The support is a finite-sample object: a successor seen once may be noise, one unseen may be missing. A sweep
        over `threshold` shows how much the predicted geometry depends on it. Raises `BadInput` if nothing is left.
        """
        matrix = self.matrix().copy()  # eliminating zeros works in place, and these arrays are ours
        matrix.data = np.where(matrix.data >= threshold, matrix.data, 0.0)
        matrix.eliminate_zeros()
        kept = np.flatnonzero(np.diff(matrix.indptr))
        if not len(kept):
            raise BadInput(f"No successor was seen at least {threshold:g} times.")
        return SoftLabels.of(matrix[kept])
