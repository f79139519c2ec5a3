"""Supports: for each context, the set of tokens that ever follow it, as the rows of a sparse 0/1 matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from headscan.ntp.arrays import Floats, Ints, SupportsLike
from headscan.run import BadInput

__all__ = ["Supports", "group_equal_rows"]


@dataclass(frozen=True, eq=False)
class Supports:
    """The support matrix S in {0, 1}^(contexts x vocabulary) as CSR index arrays (rows sorted, no repeats).

    `indptr` is int64 [m + 1], `indices` is int32 [nnz]; row j holds the tokens seen after context j. Build one with
    `Supports.of`, which accepts another `Supports`, a scipy sparse matrix, a dense array or a list of token-id lists.

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
        """Read supports from what the caller has.

        `supports` is a `Supports`, anything with an attribute `.supports`, a scipy sparse matrix or dense array
        [contexts, vocabulary] (non-zero means "in the support"), or a sequence of token-id sequences, which needs
        `vocabulary`. Raises `BadInput` for an empty matrix, an empty support, or a token id outside the vocabulary.
        """
        if isinstance(supports, cls):
            return supports
        held = getattr(supports, "supports", None)
        if isinstance(held, cls):
            return held
        if sp.issparse(supports):
            matrix = sp.csr_matrix(supports).copy()
            matrix.sum_duplicates()
            matrix.eliminate_zeros()
            return cls._checked(matrix.indptr, matrix.indices, matrix.shape[1])
        if hasattr(supports, "numpy"):  # a torch tensor
            supports = supports.numpy()
        if isinstance(supports, np.ndarray) and supports.ndim == 2:
            matrix = sp.csr_matrix(supports != 0)
            return cls._checked(matrix.indptr, matrix.indices, matrix.shape[1])
        if isinstance(supports, Sequence):
            if vocabulary is None:
                raise BadInput("Supports given as lists of token ids need the size of the vocabulary.")
            rows = [np.unique(np.asarray(row, dtype=np.int64)) for row in supports]
            indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
            indices = np.concatenate(rows) if rows else np.zeros(0, dtype=np.int64)
            return cls._checked(indptr, indices, vocabulary)
        raise BadInput("Supports must be a matrix [contexts, vocabulary] or a list of lists of token ids.")

    @classmethod
    def _checked(cls, indptr: npt.NDArray[Any], indices: npt.NDArray[Any], vocabulary: int) -> Supports:
        if vocabulary < 1:
            raise BadInput("The vocabulary is empty.")
        if len(indptr) < 2:
            raise BadInput("There are no contexts.")
        empty = np.flatnonzero(np.diff(indptr) == 0)
        if len(empty):
            raise BadInput(f"Context {empty[0]} has an empty support: every context needs at least one next token.")
        if len(indices) and (indices.min() < 0 or indices.max() >= vocabulary):
            raise BadInput(f"A support holds a token id outside the vocabulary of {vocabulary}.")
        return cls(np.asarray(indptr, dtype=np.int64), np.asarray(indices, dtype=np.int32), int(vocabulary))

    @property
    def contexts(self) -> int:
        """m, the number of contexts (rows)."""
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
        """S as a scipy CSR matrix of ones [m, V]."""
        shape = (self.contexts, self.vocabulary)
        return sp.csr_matrix((np.ones(len(self.indices), dtype=dtype), self.indices, self.indptr), shape=shape)

    def dense(self) -> npt.NDArray[np.bool_]:
        """S as a dense bool array [m, V]."""
        dense = np.zeros((self.contexts, self.vocabulary), dtype=bool)
        dense[self.rows, self.indices] = True
        return dense

    def centred(self) -> Floats:
        """The centred support matrix S~ = S (I - 11ᵀ/V), dense float64 [m, V]: row j is s_j - k_j/V."""
        return self.dense() - (self.sizes / self.vocabulary)[:, None]

    def take(self, rows: Ints) -> Supports:
        """The supports of the chosen contexts, in that order."""
        matrix = self.matrix(np.int8)[rows]
        return Supports(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), self.vocabulary)

    def unique(self) -> tuple[Supports, Ints, Ints]:
        """Distinct supports, `inverse` int64 [m] (row of each context among them) and multiplicities int64 [u].

        Exact (bytes are compared, not hashes); O(nnz log m).

        >>> distinct, inverse, multiplicity = Supports.of([[0, 1], [2], [0, 1]], vocabulary=4).unique()
        >>> distinct.contexts, inverse.tolist(), multiplicity.tolist()
        (2, [1, 0, 1], [1, 2])
        """
        first, inverse = group_equal_rows(self.indptr, self.indices)
        return self.take(first), inverse, np.bincount(inverse, minlength=len(first))

    def equal_tokens(self) -> tuple[Ints, Ints]:
        """Tokens that stand in exactly the same supports: one representative a class int64 [c], class of each [V].

        All tokens that never follow any context form one such class.
        """
        columns = self.matrix(np.int8).tocsc()
        columns.sort_indices()
        return group_equal_rows(columns.indptr, columns.indices)


def group_equal_rows(indptr: Ints, indices: npt.NDArray[np.int32]) -> tuple[Ints, Ints]:
    """Group equal rows of a CSR pattern: (first row of each class [c], class of each row [rows]), both int64.

    Rows of equal length are compared as byte strings, one length after another, so no hash can collide.
    """
    sizes = np.diff(indptr)
    values = np.ascontiguousarray(indices, dtype=np.int32)
    first: list[Ints] = []
    inverse = np.zeros(len(sizes), dtype=np.int64)
    found = 0
    for size in np.unique(sizes):
        rows = np.flatnonzero(sizes == size)
        if size == 0:
            here, of_row = np.zeros(1, dtype=np.int64), np.zeros(len(rows), dtype=np.int64)
        else:
            block = values[np.asarray(indptr)[rows][:, None] + np.arange(size)]
            keys = block[:, 0] if size == 1 else block.view(np.dtype((np.void, block.dtype.itemsize * size))).ravel()
            _, here, of_row = np.unique(keys, return_index=True, return_inverse=True)
        first.append(rows[here])
        inverse[rows] = found + of_row
        found += len(here)
    return np.concatenate(first), inverse
