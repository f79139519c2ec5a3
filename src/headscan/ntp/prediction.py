"""The geometry that the data alone predict: both parts of the logits, embeddings, and their Gram
matrices.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, svds

from headscan.ntp.labels import CountsLike, Floats, Ints, SoftLabels, Supports, SupportsLike
from headscan.ntp.subspace import TokenClasses, sparse_component
from headscan.ntp.svm import SvmSolution, svm
from headscan.run import BadInput

Reals = npt.NDArray[np.floating[Any]]
"""Numbers in any floating-point precision."""

_GRAM_LIMIT = 4096
"""Up to this many classes of tokens the Gram matrix and its eigenvectors are cheaper than
iterating, and give the whole spectrum.
"""

_SMALLEST_SIGMA = 1e-7
"""Singular values below this share of the largest drown in the rounding of the Gram matrix."""


@dataclass(frozen=True, eq=False)
class SupportSpectrum:
    """The leading part of S~ = Σ_k σ_k u_k v_kᵀ over all contexts (equal supports counted as often
    as they occur).

    `sigma` float64 [r] descending; `merged` [c, r] orthonormal: v for the classes of equal tokens,
    times the root of their number (see `TokenClasses`); `distinct` u for each distinct support [u,
    r] with `inverse` [m].
    """

    sigma: Floats
    classes: TokenClasses
    merged: Floats
    distinct: Floats
    inverse: Ints

    @property
    def tokens(self) -> Floats:
        """v [V, r]: orthonormal columns ("word analysers"). Computed at each call: 8 V r bytes."""
        return self.classes.tokens(self.merged)

    @property
    def contexts(self) -> Floats:
        """u [m, r]: orthonormal columns ("context analysers")."""
        return self.distinct[self.inverse]

    def factors(self) -> tuple[Floats, Floats]:
        """Return W = VΣ^½ [V, r] and H = UΣ^½ [m, r], so that WWᵀ = (S~ᵀS~)^½ and HHᵀ = (S~S~ᵀ)^½.

        The square root matters: on real text the cosine of WWᵀ with the Gram of L^mm is 0.93 to
        1.00, that of S~ᵀS~ itself 0.65 to 0.94.
        """
        merged, contexts = self.merged_factors()
        return self.classes.tokens(merged), contexts

    def merged_factors(self) -> tuple[Floats, Floats]:
        """Return `factors` with W [c, r] of the classes of equal tokens."""
        root = np.sqrt(self.sigma)
        return self.merged * root, self.contexts * root


def support_spectrum(
    supports: SupportsLike, rank: int | None = None, *, seed: int = 0
) -> SupportSpectrum:
    """Return the SVD of the centred support matrix, which is never formed: S~x = Sx - (k/V) 1ᵀx.

    Equal supports are merged (weight √multiplicity), and so are equal tokens, which is exact. With
    at most 4096 classes of tokens one sparse Gram and one eigendecomposition give any `rank` (None:
    all); beyond that ARPACK finds the leading `rank` (needed then). Cost: O(Σ k_j²) + O(c³), or
    O(nnz · rank) a pass.

    >>> support_spectrum(np.eye(3)).sigma.round(6).tolist()
    [1.0, 1.0]
    """
    S = Supports.of(supports)
    V = S.vocabulary
    distinct, inverse, multiplicity = S.unique()
    if int(distinct.sizes.min()) == V:
        raise BadInput(
            "Every support covers the whole vocabulary: the centred support matrix is zero."
        )
    classes = TokenClasses.of_supports(distinct)
    root = np.sqrt(multiplicity.astype(np.float64))
    merged = distinct.matrix()[:, classes.first]
    A = (sp.diags(root) @ merged @ sp.diags(classes.root)).tocsr()
    mean = root * distinct.sizes / V
    ones = classes.root  # the vector 1, once equal tokens are merged
    if len(classes.first) <= _GRAM_LIMIT:
        sigma, tokens = _spectrum_by_gram(A, mean, ones, rank)
    else:
        sigma, tokens = _spectrum_by_iteration(A, mean, ones, rank, seed)
    contexts = (A @ tokens - np.outer(mean, ones @ tokens)) / sigma / root[:, None]
    return SupportSpectrum(sigma, classes, tokens, contexts, inverse)


def _spectrum_by_gram(
    A: sp.csr_matrix, mean: Floats, ones: Floats, rank: int | None
) -> tuple[Floats, Floats]:
    """Return σ [r] and v [c, r] of A - mean 1ᵀ from its Gram matrix.

    (A - mean 1ᵀ)ᵀ(A - mean 1ᵀ) needs Aᵀmean once, and meanᵀmean is a number.
    """
    gram = np.asarray((A.T @ A).todense())
    cross = np.outer(A.T @ mean, ones)
    gram += (mean @ mean) * np.outer(ones, ones) - cross - cross.T
    values, vectors = np.linalg.eigh(gram)
    sigma = np.sqrt(np.maximum(values[::-1], 0.0))
    positive = int((sigma > _SMALLEST_SIGMA * sigma[0]).sum())
    count = min(positive, len(sigma) if rank is None else rank)
    return sigma[:count], np.ascontiguousarray(vectors[:, ::-1][:, :count])


def _spectrum_by_iteration(
    A: sp.csr_matrix, mean: Floats, ones: Floats, rank: int | None, seed: int
) -> tuple[Floats, Floats]:
    """Return the leading σ [rank] and v [c, rank] of A - mean 1ᵀ by ARPACK."""
    if rank is None or not 1 <= rank < min(A.shape):
        raise BadInput(
            f"With more than {_GRAM_LIMIT} tokens say how many directions to keep (rank)."
        )
    operator = LinearOperator(
        A.shape,
        matvec=lambda x: A @ x - mean * (ones @ x),
        rmatvec=lambda y: A.T @ y - (mean @ y) * ones,
        matmat=lambda X: A @ X - np.outer(mean, ones @ X),
        rmatmat=lambda Y: A.T @ Y - np.outer(ones, mean @ Y),
        dtype=np.float64,
    )
    start = np.random.default_rng(seed).standard_normal(min(A.shape))
    _, sigma, right = svds(operator, k=rank, v0=start)
    order = np.argsort(-sigma)
    return sigma[order], right[order].T


@dataclass(frozen=True, eq=False)
class Prediction:
    """The limit of next-token prediction on `labels`: logits ≈ L^in + R·L^mm with R growing.

    `sparse` is L^in on the stored entries [nnz]; `solution` the certified NTP-SVM, or None where
    only the proxy is used; `words` [V, r] and `contexts` [m, r] are the predicted embeddings up to
    rotation and scale, and `merged_words` [c, r] those of the classes of equal tokens (see
    `TokenClasses`; their Gram matrix says as much). `known_factors` are `merged_words` and
    `contexts` where they were computed before.
    """

    labels: SoftLabels
    sparse: Floats
    solution: SvmSolution | None
    spectrum: SupportSpectrum
    known_factors: tuple[Floats, Floats] | None = None

    @cached_property
    def _factors(self) -> tuple[Floats, Floats]:
        if self.known_factors is not None:
            return self.known_factors
        if self.solution is not None:
            return self.solution.merged_factors()
        return self.spectrum.merged_factors()

    def restricted(self, rows: Ints) -> "Prediction":
        """Return the same prediction for some of the contexts: nothing is solved again."""
        supports = self.labels.supports
        sizes = supports.sizes[rows]
        starts = np.append(0, np.cumsum(sizes)[:-1])
        shifts = np.repeat(supports.indptr[rows] - starts, sizes)
        entries = shifts + np.arange(sizes.sum())
        spectrum = replace(self.spectrum, inverse=self.spectrum.inverse[rows])
        factors = (self.merged_words, self.contexts[rows])
        return Prediction(
            self.labels.take(rows), self.sparse[entries], self.solution, spectrum, factors
        )

    @property
    def words(self) -> Floats:
        """W^mm [V, r]: predicted word embeddings. Computed at each call: 8 V r bytes."""
        return self.spectrum.classes.tokens(self.merged_words)

    @property
    def merged_words(self) -> Floats:
        """W^mm [c, r] of the classes of equal tokens, times the root of how many they are."""
        return self._factors[0]

    @property
    def contexts(self) -> Floats:
        """H^mm [m, r]: predicted context embeddings; equal supports have equal rows."""
        return self._factors[1]

    @property
    def exact(self) -> bool:
        """Whether the low-rank part is the certified solution; else it is the spectral proxy."""
        return self.solution is not None

    def low_rank(self, rows: slice | Ints = slice(None)) -> Floats:
        """Return the predicted direction of P_⊥(L) for some contexts, float64 [rows, V]; each row
        sums to zero.
        """
        classes = self.spectrum.classes
        words = self.merged_words / classes.root[:, None]
        return np.asarray((self.contexts[rows] @ words.T)[:, classes.of])


def predict(
    counts: CountsLike,
    *,
    gap: float = 1e-6,
    exact: bool = True,
    rank: int | None = None,
    **options: Any,
) -> Prediction:
    """Return the geometry that soft labels predict (anything `SoftLabels.of` reads, [contexts,
    vocabulary]).

    `exact` solves the NTP-SVM to the relative `gap`; without it the low-rank part is the spectral
    proxy with `rank` directions. `options` go to `svm`.

    >>> prediction = predict([[3, 1, 0], [1, 1, 0], [0, 0, 4]])
    >>> h = prediction.contexts
    >>> bool(np.allclose(h[0], h[1]))  # equal supports: the contexts collapse onto each other
    True
    """
    labels = SoftLabels.of(counts)
    solution = svm(labels.supports, gap=gap, **options) if exact else None
    return Prediction(
        labels, sparse_component(labels), solution, support_spectrum(labels.supports, rank)
    )


def _entries(column: Floats, indices: Ints) -> tuple[tuple[int, float], ...]:
    """Return the indices with their entries of a column."""
    return tuple((int(index), float(column[index])) for index in indices)


def cosine(a: Reals, b: Reals) -> float:
    """Return ⟨A, B⟩ / (‖A‖_F ‖B‖_F), in [-1, 1]; nan when either is zero."""
    norm = np.linalg.norm(a) * np.linalg.norm(b)
    return float((a * b).sum() / norm) if norm > 0 else float("nan")


def unit_rows(X: Reals) -> Reals:
    """Return the rows scaled to norm one; zero rows stay zero."""
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    return X / np.where(norms > 0, norms, 1.0)


def _inner(A: Reals, B: Reals) -> float:
    # ⟨AAᵀ, BBᵀ⟩ = ‖AᵀB‖_F²: d x d numbers instead of n x n.
    return float(((np.asarray(A).T @ np.asarray(B)) ** 2).sum())


def gram_cosine(A: Reals, B: Reals) -> float:
    """Return cos(AAᵀ, BBᵀ) for embeddings A [n, d] and B [n, d'], in [0, 1].

    It does not depend on rotations and on scale. O(n d d').

    >>> A = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> rotation = np.array([[0.0, -1.0], [1.0, 0.0]])
    >>> round(gram_cosine(A, A @ rotation), 12), round(gram_cosine(A, A[:, :1]), 6)
    (1.0, 0.707107)
    """
    norm = float(np.sqrt(_inner(A, A) * _inner(B, B)))
    return _inner(A, B) / norm if norm > 0 else float("nan")


@dataclass(frozen=True)
class SemanticAxis:
    """One latent concept: its strength σ and the tokens at its two ends, strongest first, as (token
    id, coordinate).
    """

    index: int
    strength: float
    positive: tuple[tuple[int, float], ...]
    negative: tuple[tuple[int, float], ...]


def axes(words: Floats, *, count: int = 8, ends: int = 10) -> list[SemanticAxis]:
    """Return the first `count` axes of words [V, r] (columns = axes, strongest first), each with
    its `ends` extreme tokens.

    The sign of an axis is arbitrary; here the end with the largest coordinate is called positive.

    >>> axes(np.array([[0.1], [-0.9], [0.5]]), count=1, ends=1)[0].positive
    ((1, 0.9),)
    """
    semantic_axes = []
    for index in range(min(count, words.shape[1])):
        column = np.asarray(words[:, index], dtype=np.float64)
        largest = column[np.abs(column).argmax()]
        if largest < 0:
            column = -column
        order = np.argsort(-column, kind="stable")
        highest = order[:ends]
        lowest = order[::-1][:ends]
        positive = _entries(column, highest[column[highest] > 0])
        negative = _entries(column, lowest[column[lowest] < 0])
        strength = float(np.linalg.norm(column))
        semantic_axes.append(SemanticAxis(index, strength, positive, negative))
    return semantic_axes
