"""Supports and soft labels with known answers: all k-subsets, and random sparse supports."""

from dataclasses import dataclass
from itertools import combinations
from math import comb, sqrt

import numpy as np

from headscan.ntp.labels import SoftLabels, Supports
from headscan.run import BadInput


def all_subsets(vocabulary: int, size: int) -> Supports:
    """Return every subset of `size` tokens as the support of one context: C(V, k) contexts.

    >>> all_subsets(4, 2).contexts
    6
    """
    if not 1 <= size < vocabulary:
        raise BadInput(f"The support size must lie between 1 and {vocabulary - 1}.")
    rows = np.array(list(combinations(range(vocabulary), size)), dtype=np.int32)
    row_starts = np.arange(len(rows) + 1, dtype=np.int64) * size
    return Supports(row_starts, rows.ravel(), vocabulary)


@dataclass(frozen=True)
class KSubsets:
    """The exact solution when every k-subset of V tokens is the support of one context
    (arXiv:2408.15417, Prop. 2).

    There L^mm = S~, S~ᵀS~ = C(V-2, k-1) (I - 11ᵀ/V), so all V - 1 singular values are equal. Words
    form a simplex equiangular tight frame; the embedding of a context is parallel to the sum of the
    words of its support.

    >>> exact = KSubsets(4, 2)
    >>> exact.singular_value, round(exact.word_word_cosine, 4)
    (1.4142135623730951, -0.3333)
    >>> round(exact.word_context_cosine_in, 4), round(exact.word_context_cosine_off, 4)
    (0.5774, -0.5774)
    """

    vocabulary: int
    size: int

    @property
    def singular_value(self) -> float:
        return sqrt(comb(self.vocabulary - 2, self.size - 1))

    @property
    def nuclear_norm(self) -> float:
        return (self.vocabulary - 1) * self.singular_value

    @property
    def word_norm_squared(self) -> float:
        return (1 - 1 / self.vocabulary) * self.singular_value

    @property
    def context_norm_squared(self) -> float:
        return (self.size - self.size**2 / self.vocabulary) / self.singular_value

    @property
    def word_word_cosine(self) -> float:
        return -1 / (self.vocabulary - 1)

    def context_context_cosine(self, shared: int) -> float:
        """Return cos(h_j, h_j') for supports that share `shared` tokens.

        It is (shared - k²/V) / (k - k²/V).
        """
        base = self.size**2 / self.vocabulary
        return (shared - base) / (self.size - base)

    # The paper's equation 40c prints √((V-1)/(k(V-k))) inside and -1/√(k(V-k)(V-1)) outside the
    # support. Both follow from dividing ⟨w_v, h_j⟩ = 1 - k/V (inside) and -k/V (outside) by the
    # norms above; doing so gives what stands here. The two agree only for k = 1.
    @property
    def word_context_cosine_in(self) -> float:
        return sqrt((self.vocabulary - self.size) / (self.size * (self.vocabulary - 1)))

    @property
    def word_context_cosine_off(self) -> float:
        return -sqrt(self.size / ((self.vocabulary - self.size) * (self.vocabulary - 1)))

    @property
    def printed_word_context_cosine_in(self) -> float:
        return sqrt((self.vocabulary - 1) / (self.size * (self.vocabulary - self.size)))

    @property
    def printed_word_context_cosine_off(self) -> float:
        return -1 / sqrt(self.size * (self.vocabulary - self.size) * (self.vocabulary - 1))


def random_labels(
    vocabulary: int,
    contexts: int,
    *,
    supports: int | None = None,
    sizes: tuple[int, int] = (1, 4),
    concentration: float = 1.0,
    seed: int = 0,
) -> SoftLabels:
    """Return soft labels on random sparse supports.

    Supports are drawn, distinct or not, of a size uniform in `sizes` (inclusive). Soft labels are
    drawn from a symmetric Dirichlet, floored so that every token of the support has at least a
    tenth of its fair share.

    Args:
        supports: how many supports are drawn, by default one a context. With fewer, several
            contexts share a support, which is where subspace collapse shows.

    >>> labels = random_labels(10, 95, supports=30, seed=1)
    >>> labels.contexts, labels.supports.unique()[0].contexts <= 30
    (95, True)
    """
    low, high = sizes
    if not 1 <= low <= high <= vocabulary:
        raise BadInput(f"Support sizes must lie between 1 and {vocabulary}, smaller first.")
    generator = np.random.default_rng(seed)
    uniform = np.full(vocabulary, 1 / vocabulary)
    support_count = contexts if supports is None else supports
    drawn = []
    for _ in range(support_count):
        size = int(generator.integers(low, high + 1))
        drawn.append(np.sort(generator.choice(vocabulary, size, replace=False, p=uniform)))
    support_of_context = np.arange(contexts)
    extra = max(contexts - support_count, 0)
    support_of_context[support_count:] = generator.integers(0, support_count, size=extra)
    probability = np.zeros((contexts, vocabulary))
    for context, number in enumerate(support_of_context):
        support = drawn[number]
        size = len(support)
        random_law = generator.dirichlet(np.full(size, concentration))
        probability[context, support] = 0.9 * random_law + 0.1 / size
    return SoftLabels.from_probability(probability)
