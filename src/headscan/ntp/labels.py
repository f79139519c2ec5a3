"""Soft labels: how often each token followed each context, as the rows of a sparse matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from headscan.run import BadInput

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]
SupportsLike: TypeAlias = npt.NDArray[Any] | Any
"""`Supports`, `SoftLabels`, a matrix [contexts, vocabulary] (numpy, scipy, torch), lists of ids."""
CountsLike: TypeAlias = npt.NDArray[Any] | Any
"""Labels, or a matrix of counts [contexts, vocabulary], sparse or dense."""


@dataclass(frozen=True, eq=False)
class Supports:
    """The support matrix S in {0, 1}^(contexts x vocabulary) as CSR index arrays, without repeats.

    `indptr` is int64 [m + 1], `indices` is int32 [nnz]; row j holds the tokens seen after context
    j. `Supports.of` makes them.

    >>> S = Supports.of([[0, 1], [2], [0, 1]], vocabulary=4)
    >>> S.contexts, S.vocabulary, S.sizes.tolist()
    (3, 4, [2, 1, 2])
    >>> S.dense().astype(int).tolist()
    [[1, 1, 0, 0], [0, 0, 1, 0], [1, 1, 0, 0]]
    """

    indptr: Ints
    indices: npt.NDArray[np.int32]
    vocabulary: int

    @classmethod
    def of(cls, supports: SupportsLike, vocabulary: int | None = None) -> Supports:
        """Return supports, read from any of several forms.

        `supports` is a `Supports`, anything with an attribute `.supports`, a sparse or dense matrix
        [contexts, vocabulary] (non-zero means "in the support"), or a sequence of token-id
        sequences, which needs `vocabulary`. Raises `BadInput` for an empty matrix, an empty
        support, or a token id outside the vocabulary.
        """
        inner = getattr(supports, "supports", supports)
        if isinstance(inner, cls):
            return inner
        if sp.issparse(supports) or len(getattr(supports, "shape", ())) == 2:
            entries = supports if sp.issparse(supports) else np.asarray(supports) != 0
            matrix = sp.csr_matrix(entries, copy=True)
            matrix.sum_duplicates()
            matrix.eliminate_zeros()
            return cls._checked(matrix.indptr, matrix.indices, matrix.shape[1])
        if not isinstance(supports, Sequence):
            raise BadInput(
                "Supports must be a matrix [contexts, vocabulary] or a list of lists of token ids."
            )
        if vocabulary is None:
            raise BadInput("Supports given as lists of token ids need the size of the vocabulary.")
        rows = [np.unique(np.asarray(row, dtype=np.int64)) for row in supports]
        indptr = np.cumsum([0, *(len(row) for row in rows)])
        indices = np.concatenate([np.zeros(0, dtype=np.int64), *rows])
        return cls._checked(indptr, indices, vocabulary)

    @classmethod
    def _checked(
        cls, indptr: npt.NDArray[Any], indices: npt.NDArray[Any], vocabulary: int
    ) -> Supports:
        if vocabulary < 1:
            raise BadInput("The vocabulary is empty.")
        if len(indptr) < 2:
            raise BadInput("There are no contexts.")
        empty = np.flatnonzero(np.diff(indptr) == 0)
        if len(empty):
            raise BadInput(
                f"Context {empty[0]} has an empty support: every context needs at least one next "
                "token."
            )
        if len(indices) and (indices.min() < 0 or indices.max() >= vocabulary):
            raise BadInput(f"A support holds a token id outside the vocabulary of {vocabulary}.")
        return cls(
            np.asarray(indptr, dtype=np.int64), np.asarray(indices, dtype=np.int32), int(vocabulary)
        )

    @property
    def contexts(self) -> int:
        return len(self.indptr) - 1

    @property
    def sizes(self) -> Ints:
        """k_j = |S_j|, int64 [m]."""
        return np.diff(self.indptr)

    @property
    def rows(self) -> Ints:
        """The context of every stored entry, int64 [nnz] (the COO row index)."""
        return np.repeat(np.arange(self.contexts), self.sizes)

    def matrix(self, dtype: Any = np.float64) -> sp.csr_matrix:
        """Return S as a scipy CSR matrix of ones [m, V]."""
        shape = (self.contexts, self.vocabulary)
        ones = np.ones(len(self.indices), dtype=dtype)
        return sp.csr_matrix((ones, self.indices, self.indptr), shape=shape)

    def dense(self) -> npt.NDArray[np.bool_]:
        """Return S as a dense matrix [m, V]."""
        dense = np.zeros((self.contexts, self.vocabulary), dtype=bool)
        dense[self.rows, self.indices] = True
        return dense

    def centred(self) -> Floats:
        """Return the centred support matrix S~ = S (I - 11ᵀ/V), dense float64 [m, V].

        Row j is s_j - k_j/V.
        """
        return self.dense() - (self.sizes / self.vocabulary)[:, None]

    def take(self, rows: Ints) -> Supports:
        """Return the supports of some contexts."""
        matrix = self.matrix(np.int8)[rows]
        return Supports(
            matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), self.vocabulary
        )

    def unique(self) -> tuple[Supports, Ints, Ints]:
        """Return the distinct supports, `inverse` int64 [m] (row of each context among them) and
        multiplicities int64 [u].

        Exact (bytes are compared, not hashes); O(nnz log m).

        >>> supports = Supports.of([[0, 1], [2], [0, 1]], vocabulary=4)
        >>> distinct, inverse, multiplicity = supports.unique()
        >>> distinct.contexts, inverse.tolist(), multiplicity.tolist()
        (2, [1, 0, 1], [1, 2])
        """
        first, inverse = group_equal_rows(self.indptr, self.indices)
        return self.take(first), inverse, np.bincount(inverse, minlength=len(first))

    def equal_tokens(self) -> tuple[Ints, Ints]:
        """Return the classes of tokens that stand in exactly the same supports: one token of each
        class int64 [c], and the class of each token [V].

        All tokens that never follow any context form one class.
        """
        columns = self.matrix(np.int8).tocsc()
        columns.sort_indices()
        return group_equal_rows(columns.indptr, columns.indices)


def group_equal_rows(indptr: Ints, indices: npt.NDArray[np.int32]) -> tuple[Ints, Ints]:
    """Return the classes of equal rows of a CSR pattern: the first row of each class [c], and the
    class of each row [rows], both int64.

    Rows of equal length are compared as byte strings, one length after another, so no hash can
    collide.
    """
    sizes = np.diff(indptr)
    values = np.ascontiguousarray(indices, dtype=np.int32)
    first: list[Ints] = []
    inverse = np.zeros(len(sizes), dtype=np.int64)
    classes = 0
    for size in np.unique(sizes):
        rows = np.flatnonzero(sizes == size)
        first_of_class = np.zeros(1, dtype=np.int64)
        class_of_row = np.zeros(len(rows), dtype=np.int64)
        if size:
            starts = np.asarray(indptr)[rows][:, None]
            block = values[starts + np.arange(size)]
            _, first_of_class, class_of_row = np.unique(
                _row_keys(block), return_index=True, return_inverse=True
            )
        first.append(rows[first_of_class])
        inverse[rows] = classes + class_of_row
        classes += len(first_of_class)
    return np.concatenate(first), inverse


def _row_keys(block: npt.NDArray[np.int32]) -> npt.NDArray[Any]:
    """Return one comparable key for each row: its entry, or its bytes."""
    size = block.shape[1]
    if size == 1:
        return block[:, 0]
    row_bytes = np.dtype((np.void, block.dtype.itemsize * size))
    return block.view(row_bytes).ravel()


@dataclass(frozen=True, eq=False)
class SoftLabels:
    """How often each token followed each context: CSR [contexts, vocabulary] of positive counts (or
    masses).

    From it come the prior π_j = n_j / n, the soft label p_jz = n_jz / n_j and the support S_j = {z
    : n_jz > 0}. (The published text defines p with 1/n in place of 1/(n π_j); with that p would not
    sum to one.)

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
        """Return labels, read from a `SoftLabels`, or from a sparse or dense matrix of counts
        [contexts, vocabulary]. Rows may not be empty.
        """
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
        """Return labels, read from soft labels P [m, V] whose rows sum to one, and a prior π [m]
        (uniform if none).

        >>> SoftLabels.from_probability(np.array([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])).prior.tolist()
        [0.5, 0.5]
        """
        probability = np.asarray(probability, dtype=np.float64)
        if not np.allclose(probability.sum(1), 1.0, atol=1e-9):
            raise BadInput("Every row of the soft labels must sum to one.")
        if prior is None:
            prior = np.full(len(probability), 1.0 / len(probability))
        return cls.of(probability * np.asarray(prior)[:, None])

    @property
    def contexts(self) -> int:
        return self.supports.contexts

    @property
    def vocabulary(self) -> int:
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
        """Return the counts as scipy CSR [m, V]."""
        return sp.csr_matrix(
            (self.counts, self.supports.indices, self.supports.indptr),
            shape=(self.contexts, self.vocabulary),
        )

    def dense(self) -> Floats:
        """Return the soft labels p as a dense matrix [m, V]."""
        dense = np.zeros((self.contexts, self.vocabulary))
        dense[self.supports.rows, self.supports.indices] = self.probability
        return dense

    def entropy(self) -> float:
        """Return H = -Σ_j π_j Σ_z p_jz log p_jz in nats, the lower bound of the cross-entropy of
        any model of this order.

        No finite logits reach it unless every support is the whole vocabulary. Range [0, log V].
        O(nnz).
        """
        weight = self.counts / self.total
        return float(-(weight * np.log(self.probability)).sum()) + 0.0

    def take(self, rows: Ints) -> SoftLabels:
        """Return the labels of some contexts; the prior is renormalised over them."""
        return SoftLabels.of(self.matrix()[rows])

    def at_least(self, threshold: float) -> SoftLabels:
        """Return the labels without successors seen fewer than `threshold` times, and without
        contexts left with none; `BadInput` if nothing is left.
        """
        matrix = self.matrix().copy()  # eliminating zeros works in place, and these arrays are ours
        matrix.data = np.where(matrix.data >= threshold, matrix.data, 0.0)
        matrix.eliminate_zeros()
        rows = np.flatnonzero(np.diff(matrix.indptr))
        if not len(rows):
            raise BadInput(f"No successor was seen at least {threshold:g} times.")
        return SoftLabels.of(matrix[rows])
