"""The cheap proxy at corpus scale: the truncated SVD of the sparse centred support matrix, with the square root kept."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, svds

from headscan.ntp.arrays import Floats, Ints, SupportsLike
from headscan.ntp.supports import Supports
from headscan.run import BadInput

__all__ = ["SupportSpectrum", "support_spectrum"]

# Up to this many tokens the V x V Gram and its eigenvectors are cheaper than iterating, and give the whole spectrum.
_GRAM_LIMIT = 4096


@dataclass(frozen=True, eq=False)
class SupportSpectrum:
    """The leading part of S~ = Σ_k σ_k u_k v_kᵀ over all contexts (equal supports counted as often as they occur).

    `sigma` float64 [r] descending; `tokens` v [V, r] ("word analysers"); `distinct` u for each distinct support
    [u, r] with `inverse` [m]; `energy` = ‖S~‖_F².
    """

    sigma: Floats
    tokens: Floats
    distinct: Floats
    inverse: Ints
    energy: float

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
        root = np.sqrt(self.sigma)
        return self.tokens * root, self.contexts * root


def support_spectrum(supports: SupportsLike, rank: int | None = None, *, seed: int = 0) -> SupportSpectrum:
    """The SVD of the centred support matrix, without ever forming it: S~x = Sx - (k/V) 1ᵀx.

    Equal supports are merged (weight √multiplicity), which is exact. With V <= 4096 one sparse Gram and one
    eigendecomposition give any `rank` (None: all); beyond that ARPACK finds the leading `rank` (needed then). Cost:
    O(Σ k_j²) + O(V³), or O(nnz · rank) a pass.

    >>> spectrum = support_spectrum(np.eye(3))
    >>> spectrum.sigma.round(6).tolist(), round(spectrum.captured, 6)
    ([1.0, 1.0], 1.0)
    """
    S = Supports.of(supports)
    distinct, inverse, multiplicity = S.unique()
    V, root = S.vocabulary, np.sqrt(multiplicity.astype(np.float64))
    A = sp.diags(root) @ distinct.matrix()
    mean = root * distinct.sizes / V
    energy = float((multiplicity * (distinct.sizes - distinct.sizes**2 / V)).sum())
    if energy <= 0:
        raise BadInput("Every support covers the whole vocabulary: the centred support matrix is zero.")
    if V <= _GRAM_LIMIT:
        # (A - mean 1ᵀ)ᵀ(A - mean 1ᵀ), where Aᵀmean is needed once and meanᵀmean is a number.
        gram = np.asarray((A.T @ A).todense())
        cross = A.T @ mean
        gram += mean @ mean - cross[:, None] - cross[None, :]
        values, vectors = np.linalg.eigh(gram)
        sigma = np.sqrt(np.maximum(values[::-1], 0.0))
        kept = int((sigma > 1e-7 * sigma[0]).sum()) if rank is None else min(rank, int((sigma > 1e-7 * sigma[0]).sum()))
        sigma, tokens = sigma[:kept], vectors[:, ::-1][:, :kept]
    else:
        if rank is None or not 1 <= rank < min(A.shape):
            raise BadInput(f"With more than {_GRAM_LIMIT} tokens say how many directions to keep (rank).")
        operator = LinearOperator(
            A.shape,
            matvec=lambda x: A @ x - mean * x.sum(),
            rmatvec=lambda y: A.T @ y - mean @ y,
            matmat=lambda X: A @ X - np.outer(mean, X.sum(0)),
            rmatmat=lambda Y: A.T @ Y - (mean @ Y)[None, :],
            dtype=np.float64,
        )
        start = np.random.default_rng(seed).standard_normal(min(A.shape))
        _, sigma, right = svds(operator, k=rank, v0=start)
        order = np.argsort(-sigma)
        sigma, tokens = sigma[order], right[order].T
    left = (A @ tokens - np.outer(mean, tokens.sum(0))) / sigma / root[:, None]
    return SupportSpectrum(sigma, tokens, left, inverse, energy)
