"""The geometry that the data alone predict: both components of the logits, embeddings, and their
Gram matrices.
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

# Up to this many classes of tokens the Gram and its eigenvectors are cheaper than iterating, and
# give the whole spectrum.
_GRAM_LIMIT = 4096


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
        """v [V, r]: orthonormal columns ("word analysers"). Made anew at each call: 8 V r bytes."""
        return self.classes.tokens(self.merged)

    @property
    def contexts(self) -> Floats:
        """u [m, r]: orthonormal columns ("context analysers")."""
        return self.distinct[self.inverse]

    def factors(self) -> tuple[Floats, Floats]:
        """W = VΣ^½ [V, r] and H = UΣ^½ [m, r], so that WWᵀ = (S~ᵀS~)^½ and HHᵀ = (S~S~ᵀ)^½. The
        square root matters: on real text the cosine of WWᵀ with the Gram of L^mm is 0.93 to 1.00,
        that of S~ᵀS~ itself 0.65 to 0.94.
        """
        merged, contexts = self.merged_factors()
        return self.classes.tokens(merged), contexts

    def merged_factors(self) -> tuple[Floats, Floats]:
        """`factors` with W [c, r] of the classes of equal tokens."""
        root = np.sqrt(self.sigma)
        return self.merged * root, self.contexts * root


def support_spectrum(
    supports: SupportsLike, rank: int | None = None, *, seed: int = 0
) -> SupportSpectrum:
    """The SVD of the centred support matrix, without ever forming it: S~x = Sx - (k/V) 1ᵀx.

    Equal supports are merged (weight √multiplicity), and so are equal tokens, which is exact. With
    at most 4096 classes of tokens one sparse Gram and one eigendecomposition give any `rank` (None:
    all); beyond that ARPACK finds the leading `rank` (needed then). Cost: O(Σ k_j²) + O(c³), or
    O(nnz · rank) a pass.

    >>> support_spectrum(np.eye(3)).sigma.round(6).tolist()
    [1.0, 1.0]
    """
    S = Supports.of(supports)
    distinct, inverse, multiplicity = S.unique()
    classes = TokenClasses.of_supports(distinct)
    V = S.vocabulary
    root = np.sqrt(multiplicity.astype(np.float64))
    A = (sp.diags(root) @ distinct.matrix()[:, classes.first] @ sp.diags(classes.root)).tocsr()
    mean = root * distinct.sizes / V
    ones = classes.root
    if int(distinct.sizes.min()) == V:
        raise BadInput(
            "Every support covers the whole vocabulary: the centred support matrix is zero."
        )
    if len(classes.first) <= _GRAM_LIMIT:
        # (A - mean 1ᵀ)ᵀ(A - mean 1ᵀ), where Aᵀmean is needed once and meanᵀmean is a number; 1 is
        # `ones` once merged.
        gram = np.asarray((A.T @ A).todense())
        cross = np.outer(A.T @ mean, ones)
        gram += (mean @ mean) * np.outer(ones, ones) - cross - cross.T
        values, vectors = np.linalg.eigh(gram)
        sigma = np.sqrt(np.maximum(values[::-1], 0.0))
        kept = min(int((sigma > 1e-7 * sigma[0]).sum()), len(sigma) if rank is None else rank)
        sigma = sigma[:kept]
        tokens = np.ascontiguousarray(vectors[:, ::-1][:, :kept])
    else:
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
        _, sigma, right = svds(
            operator, k=rank, v0=np.random.default_rng(seed).standard_normal(min(A.shape))
        )
        order = np.argsort(-sigma)
        sigma = sigma[order]
        tokens = right[order].T
    left = (A @ tokens - np.outer(mean, ones @ tokens)) / sigma / root[:, None]
    return SupportSpectrum(sigma, classes, tokens, left, inverse)


@dataclass(frozen=True, eq=False)
class Prediction:
    """What next-token prediction on `labels` converges to: logits ≈ L^in + R·L^mm with R growing.

    `sparse` is L^in on the stored entries [nnz]; `solution` the certified NTP-SVM, or None where
    only the proxy was asked for; `words` [V, r] and `contexts` [m, r] are the predicted embeddings
    up to rotation and scale, and `merged_words` [c, r] those of the classes of equal tokens (see
    `TokenClasses`; their Gram matrix says as much). `given` are those factors where they are
    already known.
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
        return (
            self.spectrum.merged_factors()
            if self.solution is None
            else self.solution.merged_factors()
        )

    def restricted(self, rows: Ints) -> "Prediction":
        """The same prediction looked at through some of the contexts: nothing is solved again."""
        supports = self.labels.supports
        sizes = supports.sizes[rows]
        entries = np.repeat(
            supports.indptr[rows] - np.append(0, np.cumsum(sizes)[:-1]), sizes
        ) + np.arange(sizes.sum())
        spectrum = replace(self.spectrum, inverse=self.spectrum.inverse[rows])
        factors = (self.merged_words, self.contexts[rows])
        return Prediction(
            self.labels.take(rows), self.sparse[entries], self.solution, spectrum, factors
        )

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
        """True if the low-rank component is the certified solution, False if it is the spectral
        proxy.
        """
        return self.solution is not None

    def low_rank(self, rows: slice | Ints = slice(None)) -> Floats:
        """The predicted direction of P_⊥(L) for some contexts, float64 [rows, V], each row summing
        to zero.
        """
        classes = self.spectrum.classes
        return np.asarray(
            (self.contexts[rows] @ (self.merged_words / classes.root[:, None]).T)[:, classes.of]
        )


def predict(
    counts: CountsLike,
    *,
    gap: float = 1e-6,
    exact: bool = True,
    rank: int | None = None,
    **options: Any,
) -> Prediction:
    """Predict the geometry from soft labels (anything `SoftLabels.of` reads, [contexts,
    vocabulary]).

    `exact` solves the NTP-SVM to the relative `gap`; without it the low-rank part is the spectral
    proxy with `rank` directions. `options` go to `svm`.

    >>> prediction = predict([[3, 1, 0], [1, 1, 0], [0, 0, 4]])
    >>> h = prediction.contexts
    >>> bool(np.allclose(h[0], h[1]))              # equal supports: the contexts collapse onto each other
    True
    """
    labels = SoftLabels.of(counts)
    solution = svm(labels.supports, gap=gap, **options) if exact else None
    return Prediction(
        labels, sparse_component(labels), solution, support_spectrum(labels.supports, rank)
    )


def cosine(a: npt.NDArray[np.floating[Any]], b: npt.NDArray[np.floating[Any]]) -> float:
    """⟨A, B⟩ / (‖A‖_F ‖B‖_F), in [-1, 1]; nan when either is zero."""
    norm = np.linalg.norm(a) * np.linalg.norm(b)
    return float((a * b).sum() / norm) if norm > 0 else float("nan")


def unit_rows(X: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.floating[Any]]:
    """Rows scaled to norm one; zero rows stay zero."""
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    return X / np.where(norms > 0, norms, 1.0)


def _inner(A: npt.NDArray[np.floating[Any]], B: npt.NDArray[np.floating[Any]]) -> float:
    # ⟨AAᵀ, BBᵀ⟩ = ‖AᵀB‖_F²: d x d numbers instead of n x n.
    return float(((np.asarray(A).T @ np.asarray(B)) ** 2).sum())


def gram_cosine(A: npt.NDArray[np.floating[Any]], B: npt.NDArray[np.floating[Any]]) -> float:
    """cos(AAᵀ, BBᵀ) for embeddings A [n, d] and B [n, d']: in [0, 1], blind to rotations and to
    scale. O(n d d').

    >>> A = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> round(gram_cosine(A, A @ np.array([[0.0, -1.0], [1.0, 0.0]])), 12), round(gram_cosine(A, A[:, :1]), 6)
    (1.0, 0.707107)
    """
    norm = float(np.sqrt(_inner(A, A) * _inner(B, B)))
    return _inner(A, B) / norm if norm > 0 else float("nan")


@dataclass(frozen=True)
class SemanticAxis:
    """One latent concept: its strength σ and the tokens at its two ends, strongest first (token id,
    coordinate).
    """

    index: int
    strength: float
    positive: tuple[tuple[int, float], ...]
    negative: tuple[tuple[int, float], ...]


def axes(words: Floats, *, count: int = 8, ends: int = 10) -> list[SemanticAxis]:
    """The first `count` axes of words [V, r] (columns = axes, strongest first), each with its
    `ends` extreme tokens.

    The sign of an axis is arbitrary; here the end with the largest coordinate is called positive.

    >>> axes(np.array([[0.1], [-0.9], [0.5]]), count=1, ends=1)[0].positive
    ((1, 0.9),)
    """
    chosen = []
    for index in range(min(count, words.shape[1])):
        column = np.asarray(words[:, index], dtype=np.float64)
        column = column * (1.0 if column[np.abs(column).argmax()] >= 0 else -1.0)
        order = np.argsort(-column, kind="stable")
        positive = tuple((int(i), float(column[i])) for i in order[:ends] if column[i] > 0)
        negative = tuple((int(i), float(column[i])) for i in order[::-1][:ends] if column[i] < 0)
        chosen.append(SemanticAxis(index, float(np.linalg.norm(column)), positive, negative))
    return chosen
