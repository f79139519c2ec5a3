"""Covariances of sites and of pairs of sites, with what several measures of similarity share computed once.

Leading dimensions are batches: one pair, or all pairs of a sample at once ([S, 1, p, p], [1, T, q, q], [S, T, p, q]).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from headscan.statistics.cross import CrossSums, unbiased_hsic

__all__ = ["CrossCovariance", "SiteCovariance", "Whitening"]

VARIANCE = 0.99  # kept by the SV in SVCCA
# Of the correlation matrix, beside its largest: sums of float32 products know no smaller eigenvalue.
NOISE = 1e-6


@dataclass(frozen=True)
class Whitening:
    """`map` [..., d, d] takes centred vectors to uncorrelated coordinates of variance 1, zero beyond `kept` [...]; `back`
    [..., d, d] has the covariances of the d coordinates with these."""

    map: Tensor
    back: Tensor
    kept: Tensor


@dataclass(frozen=True)
class SiteCovariance:
    """The covariance [..., d, d] of a site's vectors, float64, from `count` tokens."""

    matrix: Tensor
    count: float

    @cached_property
    def trace(self) -> Tensor:
        """The variance of all coordinates together [...]."""
        return self.matrix.diagonal(dim1=-2, dim2=-1).sum(-1)

    @cached_property
    def nuclear(self) -> Tensor:
        """The sum of singular values [...]: the trace, computed as that of a pair is."""
        found: Tensor = torch.linalg.svdvals(self.matrix).sum(-1)
        return found

    @cached_property
    def norm(self) -> Tensor:
        """Frobenius norm [...]."""
        return self.matrix.square().sum((-2, -1)).sqrt()

    @cached_property
    def top_share(self) -> Tensor:
        """Share of the variance on the strongest direction [...]."""
        found: Tensor = torch.linalg.eigvalsh(self.matrix)[..., -1] / self.trace
        return found

    @cached_property
    def whitened(self) -> Whitening:
        """All directions that the sums know: whatever scale the coordinates have, eigenvalues of their correlations."""
        scale = self.matrix.diagonal(dim1=-2, dim2=-1).clamp(min=0).sqrt()
        inverse = torch.where(scale > 0, 1 / scale, 0.0)
        values, vectors = torch.linalg.eigh(inverse[..., :, None] * self.matrix * inverse[..., None, :])
        kept = values > NOISE * values[..., -1:]
        roots = torch.where(kept, values, 1.0).sqrt()
        chosen = vectors * kept[..., None, :]
        return Whitening(
            inverse[..., :, None] * chosen / roots[..., None, :],
            scale[..., :, None] * chosen * roots[..., None, :],
            kept.sum(-1),
        )

    @cached_property
    def principal(self) -> Whitening:
        """The first principal components that hold 99 % of the variance."""
        values, vectors = torch.linalg.eigh(self.matrix)
        values, vectors = values.flip(-1).clamp(min=0), vectors.flip(-1)
        before = values.cumsum(-1) - values
        kept = (before < VARIANCE * values.sum(-1, keepdim=True)) & (values > 0)
        roots = torch.where(kept, values, 1.0).sqrt()
        chosen = vectors * kept[..., None, :]
        return Whitening(chosen / roots[..., None, :], chosen * roots[..., None, :], kept.sum(-1))


@dataclass(frozen=True)
class CrossCovariance:
    """The covariance xy [..., p, q] of two sites, and theirs; `hsic` holds the unbiased HSIC of x with y, x with x, y with y,
    where the sums for it were kept."""

    x: SiteCovariance
    y: SiteCovariance
    xy: Tensor
    hsic: tuple[Tensor, Tensor, Tensor] | None = None

    @property
    def count(self) -> float:
        """Number of tokens."""
        return self.x.count

    @cached_property
    def canonical(self) -> tuple[Tensor, Tensor]:
        """Canonical correlations [..., k], the largest first, and the directions of x [..., p, k] in its whitened coordinates.

        Of the matrix M between the whitened sites the left singular vectors u are eigenvectors of MMᵀ; ‖Mᵀu‖ gives each
        correlation to the digits of M, where the root of an eigenvalue would lose half of them.
        """
        between = self._between(self.x.whitened, self.y.whitened)
        directions = torch.linalg.eigh(between @ between.mT).eigenvectors.flip(-1)[..., : min(between.shape[-2:])]
        return torch.linalg.vector_norm(between.mT @ directions, dim=-2).clamp(max=1.0), directions

    @cached_property
    def principal_correlations(self) -> Tensor:
        """Canonical correlations [..., k] of the principal components alone."""
        between = self._between(self.x.principal, self.y.principal)
        used = [max(1, int(site.principal.kept.max())) for site in (self.x, self.y)]  # what is beyond is zero
        found: Tensor = torch.linalg.svdvals(between[..., : used[0], : used[1]]).clamp(max=1.0)
        return found

    @cached_property
    def nuclear(self) -> Tensor:
        """The sum of singular values [...]."""
        found: Tensor = torch.linalg.svdvals(self.xy).sum(-1)
        return found

    def _between(self, x: Whitening, y: Whitening) -> Tensor:
        return x.map.mT @ self.xy @ y.map

    @classmethod
    def of_rows(cls, x: Tensor, y: Tensor, sites: tuple[SiteCovariance, SiteCovariance] | None = None) -> Self:
        """All pairs of the sites x [S, n, p] and y [T, n, q], whose covariances may be known already.

        >>> x = torch.randn(1, 50, 3, dtype=torch.float64)
        >>> pair = CrossCovariance.of_rows(x, x)
        >>> [round(float(value), 6) for value in pair.canonical[0].flatten()]
        [1.0, 1.0, 1.0]
        """
        count = float(x.shape[1])
        x, y = x - x.mean(1, keepdim=True), y - y.mean(1, keepdim=True)
        if sites is None:
            sites = (SiteCovariance(x.mT @ x / (count - 1), count), SiteCovariance(y.mT @ y / (count - 1), count))
        a, b = x.square().sum(-1), y.square().sum(-1)  # [S, n], [T, n]
        xy = torch.einsum("snp,tnq->stpq", x, y)

        def hsic(xy: Tensor, a: Tensor, b: Tensor, ab: Tensor, zero: tuple[Tensor, Tensor]) -> Tensor:
            # Centred rows: their sums are zero, and with them the terms that hold one.
            return unbiased_hsic(CrossSums(count, xy, zero[0], zero[1], a.sum(-1), b.sum(-1), ab, zero[0], zero[1]))

        zeros = (x.new_zeros(x.shape[2]), y.new_zeros(y.shape[2]))
        found = (
            hsic(xy, a[:, None], b[None], a @ b.T, zeros),
            hsic(x.mT @ x, a, a, a.square().sum(-1), (zeros[0], zeros[0]))[:, None],
            hsic(y.mT @ y, b, b, b.square().sum(-1), (zeros[1], zeros[1]))[None],
        )
        batched = (_leading(sites[0], 1), _leading(sites[1], 0))
        return cls(*batched, xy / (count - 1), found)


def _leading(site: SiteCovariance, dim: int) -> SiteCovariance:
    """The covariances [S, d, d] as [S, 1, d, d] (dim 1) or [1, S, d, d] (dim 0), with what is known of them."""
    moved = SiteCovariance(site.matrix.unsqueeze(dim), site.count)
    for name in ("trace", "nuclear", "norm"):
        if name in vars(site):
            vars(moved)[name] = vars(site)[name].unsqueeze(dim)
    for name in ("whitened", "principal"):
        if name in vars(site):
            known: Whitening = vars(site)[name]
            vars(moved)[name] = Whitening(*(getattr(known, part).unsqueeze(dim) for part in ("map", "back", "kept")))
    return moved
