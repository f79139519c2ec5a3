"""Classes of tokens that stand in the same supports: one column for all of them loses nothing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headscan.ntp.arrays import Floats, Ints
from headscan.ntp.supports import Supports

__all__ = ["TokenClasses"]


@dataclass(frozen=True, eq=False)
class TokenClasses:
    """Tokens grouped by the supports they stand in.

    A matrix whose columns are equal for equal tokens is kept as one column a class, times `root`, the square root of how
    many tokens the class has: norms, singular values and Gram matrices of contexts are then those of the whole matrix.
    With a vocabulary of 151,936 and a text of 60 kB there are some 1,500 classes.

    Attributes:
        first: int64 [c], a token of each class.
        of: int64 [V], the class of each token.
        root: float64 [c].

    >>> classes = TokenClasses.of_supports(Supports.of([[0, 1], [0, 1, 2]], vocabulary=5))
    >>> classes.of.tolist(), classes.root.round(3).tolist()
    ([2, 2, 1, 0, 0], [1.414, 1.0, 1.414])
    """

    first: Ints
    of: Ints
    root: Floats

    @classmethod
    def of_supports(cls, supports: Supports) -> TokenClasses:
        """The classes of a matrix of supports; O(nnz log V)."""
        first, of = supports.equal_tokens()
        return cls(first, of, np.sqrt(np.bincount(of, minlength=len(first)).astype(np.float64)))

    def tokens(self, merged: Floats) -> Floats:
        """Rows [V, r] of the tokens from rows [c, r] of the classes; 8 V r bytes."""
        rows: Floats = (merged / self.root[:, None])[self.of]
        return rows
