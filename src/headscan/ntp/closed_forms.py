"""Data whose geometry is known exactly: all k-subsets as supports, and one-hot labels (k = 1)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import comb, sqrt

import numpy as np

from headscan.ntp.supports import Supports
from headscan.run import BadInput

__all__ = ["KSubsets", "all_subsets"]


def all_subsets(vocabulary: int, size: int) -> Supports:
    """Every subset of `size` tokens as the support of one context: C(V, k) contexts.

    >>> all_subsets(4, 2).contexts
    6
    """
    if not 1 <= size < vocabulary:
        raise BadInput(f"The support size must lie between 1 and {vocabulary - 1}.")
    rows = np.array(list(combinations(range(vocabulary), size)), dtype=np.int32)
    return Supports(np.arange(len(rows) + 1, dtype=np.int64) * size, rows.ravel(), vocabulary)


@dataclass(frozen=True)
class KSubsets:
    """The exact solution when every k-subset of V tokens is the support of one context (arXiv:2408.15417, Prop. 2).

    There L^mm = S~, S~ᵀS~ = C(V-2, k-1) (I - 11ᵀ/V), so all V - 1 singular values are equal. Words form a simplex
    equiangular tight frame; the embedding of a context is parallel to the sum of the words of its support.

    >>> exact = KSubsets(4, 2)
    >>> exact.contexts, exact.singular_value, round(exact.word_word_cosine, 4)
    (6, 1.4142135623730951, -0.3333)
    >>> round(exact.word_context_cosine_in, 4), round(exact.word_context_cosine_off, 4)
    (0.5774, -0.5774)
    """

    vocabulary: int
    size: int

    @property
    def contexts(self) -> int:
        """m = C(V, k)."""
        return comb(self.vocabulary, self.size)

    @property
    def singular_value(self) -> float:
        """√C(V-2, k-1), with multiplicity V - 1."""
        return sqrt(comb(self.vocabulary - 2, self.size - 1))

    @property
    def nuclear_norm(self) -> float:
        """‖L^mm‖_* = (V - 1) √C(V-2, k-1)."""
        return (self.vocabulary - 1) * self.singular_value

    @property
    def word_norm_squared(self) -> float:
        """‖w_v‖² = (1 - 1/V) √C(V-2, k-1)."""
        return (1 - 1 / self.vocabulary) * self.singular_value

    @property
    def context_norm_squared(self) -> float:
        """‖h_j‖² = (k - k²/V) / √C(V-2, k-1)."""
        return (self.size - self.size**2 / self.vocabulary) / self.singular_value

    @property
    def word_word_cosine(self) -> float:
        """cos(w_v, w_v') = -1 / (V - 1)."""
        return -1 / (self.vocabulary - 1)

    def context_context_cosine(self, shared: int) -> float:
        """cos(h_j, h_j') for supports that share `shared` tokens: (shared - k²/V) / (k - k²/V)."""
        base = self.size**2 / self.vocabulary
        return (shared - base) / (self.size - base)

    # The paper's equation 40c prints √((V-1)/(k(V-k))) inside and -1/√(k(V-k)(V-1)) outside the support. Both follow
    # from dividing ⟨w_v, h_j⟩ = 1 - k/V (inside) and -k/V (outside) by the norms above; doing so gives what stands
    # here. The two agree only for k = 1.
    @property
    def word_context_cosine_in(self) -> float:
        """cos(w_v, h_j) for v in S_j: √((V - k) / (k (V - 1)))."""
        return sqrt((self.vocabulary - self.size) / (self.size * (self.vocabulary - 1)))

    @property
    def word_context_cosine_off(self) -> float:
        """cos(w_v, h_j) for v outside S_j: -√(k / ((V - k)(V - 1)))."""
        return -sqrt(self.size / ((self.vocabulary - self.size) * (self.vocabulary - 1)))

    @property
    def printed_word_context_cosine_in(self) -> float:
        """What equation 40c prints for v in S_j; wrong for k > 1, kept for the claim that says so."""
        return sqrt((self.vocabulary - 1) / (self.size * (self.vocabulary - self.size)))

    @property
    def printed_word_context_cosine_off(self) -> float:
        """What equation 40c prints for v outside S_j; wrong for k > 1, kept for the claim that says so."""
        return -1 / sqrt(self.size * (self.vocabulary - self.size) * (self.vocabulary - 1))
