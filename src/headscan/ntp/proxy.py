"""The cheap proxy at corpus scale: the truncated SVD of the sparse centred support matrix, with the square root kept."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, svds

from headscan.ntp.arrays import Floats, Ints, SupportsLike
from headscan.ntp.supports import Supports
from headscan.ntp.token_classes import TokenClasses
from headscan.run import BadInput

__all__ = ["SupportSpectrum", "support_spectrum"]

# Up to this many classes of tokens the Gram and its eigenvectors are cheaper than iterating, and give the whole spectrum.
_GRAM_LIMIT = 4096


@dataclass(frozen=True, eq=False)
class SupportSpectrum:
    """The leading part of S~ = Σ_k σ_k u_k v_kᵀ over all contexts (equal supports counted as often as they occur).

    `sigma` float64 [r] descending; `merged` [c, r] orthonormal: v for the classes of equal tokens, times the root of
    their number (see `TokenClasses`); `distinct` u for each distinct support [u, r] with `inverse` [m]; `energy` =
    ‖S~‖_F²; `whole` says that nothing was left out.
    """

    sigma: Floats
    classes: TokenClasses
    merged: Floats
    distinct: Floats
    inverse: Ints
    energy: float
    whole: bool

    @property
    def tokens(self) -> Floats:
        """v [V, r]: orthonormal columns ("word analysers"). Made anew at each call: 8 V r bytes."""
        return self.classes.tokens(self.merged)

    @property
    def contexts(self) -> Floats:
        """u [m, r]: orthonormal columns ("context analysers")."""
        return self.distinct[self.inverse]

    @property
    def captured(self) -> float:
        """Share of ‖S~‖_F² in the leading part, in [0, 1]."""
        return float((self.sigma**2).sum() / self.energy)

    def factors(self) -> tuple[Floats, Floats]:
        """W = VΣ^½ [V, r] and H = UΣ^½ [m, r], so that WWᵀ = (S~ᵀS~)^½ and HHᵀ = (S~S~ᵀ)^½.

        The square root matters: on real text the cosine of WWᵀ with the Gram of L^mm is 0.93 to 1.00, that of S~ᵀS~
        itself 0.65 to 0.94.
        """
        merged, contexts = self.merged_factors()
        return self.classes.tokens(merged), contexts

    def merged_factors(self) -> tuple[Floats, Floats]:
        """`factors` with W [c, r] of the classes of equal tokens instead of the tokens."""
        root = np.sqrt(self.sigma)
        return self.merged * root, self.contexts * root


def support_spectrum(supports: SupportsLike, rank: int | None = None, *, seed: int = 0) -> SupportSpectrum:
    """The SVD of the centred support matrix, without ever forming it: S~x = Sx - (k/V) 1ᵀx.

    Equal supports are merged (weight √multiplicity), and so are equal tokens, which is exact. With at most 4096 classes
    of tokens one sparse Gram and one eigendecomposition give any `rank` (None: all); beyond that ARPACK finds the
    leading `rank` (needed then). Cost: O(Σ k_j²) + O(c³), or O(nnz · rank) a pass.

    >>> spectrum = support_spectrum(np.eye(3))
    >>> spectrum.sigma.round(6).tolist(), round(spectrum.captured, 6)
    ([1.0, 1.0], 1.0)
    """
    S = Supports.of(supports)
    distinct, inverse, multiplicity = S.unique()
    classes = TokenClasses.of_supports(distinct)
    V, root = S.vocabulary, np.sqrt(multiplicity.astype(np.float64))
    A = (sp.diags(root) @ distinct.matrix()[:, classes.first] @ sp.diags(classes.root)).tocsr()
    mean, ones = root * distinct.sizes / V, classes.root
    energy = float((multiplicity * (distinct.sizes - distinct.sizes**2 / V)).sum())
    if energy <= 0:
        raise BadInput("Every support covers the whole vocabulary: the centred support matrix is zero.")
    if whole := len(classes.first) <= _GRAM_LIMIT:
        # (A - mean 1ᵀ)ᵀ(A - mean 1ᵀ), where Aᵀmean is needed once and meanᵀmean is a number; 1 is `ones` once merged.
        gram = np.asarray((A.T @ A).todense())
        cross = np.outer(A.T @ mean, ones)
        gram += (mean @ mean) * np.outer(ones, ones) - cross - cross.T
        values, vectors = np.linalg.eigh(gram)
        sigma = np.sqrt(np.maximum(values[::-1], 0.0))
        kept = int((sigma > 1e-7 * sigma[0]).sum())
        if rank is not None and rank < kept:
            kept, whole = rank, False
        sigma, tokens = sigma[:kept], np.ascontiguousarray(vectors[:, ::-1][:, :kept])
    else:
        if rank is None or not 1 <= rank < min(A.shape):
            raise BadInput(f"With more than {_GRAM_LIMIT} tokens say how many directions to keep (rank).")
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
        sigma, tokens = sigma[order], right[order].T
    left = (A @ tokens - np.outer(mean, ones @ tokens)) / sigma / root[:, None]
    return SupportSpectrum(sigma, classes, tokens, left, inverse, energy, whole)
