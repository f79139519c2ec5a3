"""Contexts as integers: K + 1 tokens side by side in one or more 64-bit words, so that equal means equal."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Keys", "Packed", "run_bounds"]

Packed = npt.NDArray[np.uint64]
"""Keys: uint64 [n], or [n, words]."""
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]


def run_bounds(values: npt.NDArray[Any]) -> Int64:
    """Where each run of equal values, or of equal rows [n, k], begins in a sorted array, then its length.

    >>> run_bounds(np.array([3, 3, 5])).tolist()
    [0, 2, 3]
    """
    # One flag more than values: the end comes out of the same pass, and no large array is copied to append it.
    flags = np.empty(len(values) + 1, dtype=bool)
    flags[0] = flags[-1] = True
    if len(values):
        if values.ndim == 1:
            np.not_equal(values[1:], values[:-1], out=flags[1:-1])
        else:
            flags[1:-1] = (values[1:] != values[:-1]).any(1)
    return np.flatnonzero(flags)


class Keys:
    """Packs `order` context tokens and the next one, most significant first: sorting keys sorts contexts, then next
    tokens.

    With b = bits of a token, `order + 1` tokens of b bits fit one word as long as (order + 1) b <= 64 ("narrow": 16
    tokens of 4 bits, 5 of 12, 4 of 16). Longer keys take several words; those are ranked word by word before they are
    sorted, which is as exact and about three times slower.

    >>> keys = Keys(order=2, vocabulary=10)
    >>> packed = keys.pack(np.array([1, 2, 3, 4], dtype=np.uint16))
    >>> keys.unpack(packed).tolist()
    [[1, 2, 3], [2, 3, 4]]
    """

    def __init__(self, order: int, vocabulary: int) -> None:
        self.order, self.vocabulary = order, vocabulary
        self.bits = max(1, int(vocabulary - 1).bit_length())
        self.length = order + 1
        self.per_word = 64 // self.bits
        self.words = -(-self.length // self.per_word)
        self.narrow = self.words == 1
        self.mask = np.uint64((1 << self.bits) - 1)

    def pack(self, tokens: npt.NDArray[np.integer[Any]]) -> Packed:
        """Keys of every position with a next token: uint64 [n - order] if narrow, else [n - order, words]."""
        count = max(len(tokens) - self.order, 0)
        columns = []
        for first in range(0, self.length, self.per_word):
            word = np.zeros(count, dtype=np.uint64)
            for place in range(first, min(first + self.per_word, self.length)):
                np.left_shift(word, np.uint64(self.bits), out=word)
                np.bitwise_or(word, tokens[place : place + count], out=word)
            columns.append(word)
        return columns[0] if self.narrow else np.stack(columns, axis=1)

    def unpack(self, keys: Packed) -> Int32:
        """The tokens of the keys, int32 [n, order + 1]."""
        words = keys[:, None] if self.narrow else keys
        lengths = [min(self.per_word, self.length - word * self.per_word) for word in range(self.words)]
        return np.concatenate([self._tokens(words[:, w], length) for w, length in enumerate(lengths)], axis=1)

    def group(self, keys: Packed, counts: Int64 | None = None) -> tuple[Packed, Int64]:
        """Sort keys and merge equal ones: (distinct keys ascending, counts int64); no `counts` means one each."""
        if self.narrow and counts is None:
            ordered = np.sort(keys)
        else:
            order = np.argsort(keys) if self.narrow else np.lexsort(keys.T[::-1])
            ordered = keys[order]
        bounds = run_bounds(ordered)
        if counts is None:
            return ordered[bounds[:-1]], np.diff(bounds)
        sums = np.add.reduceat(counts[order], bounds[:-1]) if len(keys) else np.zeros(0, dtype=np.int64)
        return ordered[bounds[:-1]], sums

    def split(self, keys: Packed, splitters: Packed) -> Int64:
        """Where sorted keys fall into the ranges that `splitters` (first words) cut: int64 [len(splitters) + 2]."""
        first = keys if self.narrow else keys[:, 0]
        return np.concatenate([[0], np.searchsorted(first, splitters, side="left"), [len(keys)]])

    def first_word(self, keys: Packed) -> Packed:
        """The leading word, uint64 [n], by which ranges are cut; with the next token left out of it."""
        return (keys >> np.uint64(self.bits)) << np.uint64(self.bits) if self.narrow else keys[:, 0]

    def csr(self, keys: Packed) -> tuple[Int32, Int64, Int32]:
        """Sorted distinct keys as CSR: (contexts int32 [m, order], indptr int64 [m + 1], next tokens int32 [nnz])."""
        if self.narrow:
            of_context = keys >> np.uint64(self.bits)
            bounds = run_bounds(of_context)
            contexts = self._tokens(of_context[bounds[:-1]], self.order)
            return contexts, bounds, (keys & self.mask).astype(np.int32)
        tokens = self.unpack(keys)
        bounds = run_bounds(tokens[:, : self.order])
        return tokens[bounds[:-1], : self.order], bounds, np.ascontiguousarray(tokens[:, -1])

    def _tokens(self, words: Packed, count: int) -> Int32:
        """The last `count` tokens of one word each, int32 [n, count], stored column by column."""
        tokens = np.empty((count, len(words)), dtype=np.int32)
        for place in range(count):
            tokens[place] = (words >> np.uint64(self.bits * (count - 1 - place))) & self.mask
        return tokens.T
