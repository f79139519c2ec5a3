"""Covariances of sites and of pairs of sites.

Leading dimensions are batches: one pair, or all pairs of a sample at once ([S, 1, p, p], [1, T, q,
q], [S, T, p, q]).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from headscan.statistics.hsic import CrossSums, unbiased_hsic

VARIANCE = 0.99
"""The share of the variance that the principal components of SVCCA hold."""

NOISE = 1e-6
"""Smaller eigenvalues of a correlation matrix, relative to the largest, are not known from sums of
float32 products.
"""


@dataclass(frozen=True)
class Whitening:
    """A linear map to uncorrelated coordinates of variance 1.

    Attributes:
        map: [..., d, d], of centred vectors; coordinates beyond `kept` are zero.
        kept: [...], the number of coordinates.
    """

    map: Tensor
    kept: Tensor


@dataclass(frozen=True)
class SiteCovariance:
    """The covariance [..., d, d] of a site's vectors, float64, from `count` tokens."""

    matrix: Tensor
    count: float

    @cached_property
    def nuclear(self) -> Tensor:
        """Return the sum of singular values [...]: the trace, computed as that of a pair is."""
        total: Tensor = torch.linalg.svdvals(self.matrix).sum(-1)
        return total

    @cached_property
    def norm(self) -> Tensor:
        """Return the Frobenius norm [...]."""
        return self.matrix.square().sum((-2, -1)).sqrt()

    @cached_property
    def top_share(self) -> Tensor:
        """Return the share of the variance on the strongest direction [...]."""
        largest = torch.linalg.eigvalsh(self.matrix)[..., -1]
        share: Tensor = largest / self.matrix.diagonal(dim1=-2, dim2=-1).sum(-1)
        return share

    @cached_property
    def whitened(self) -> Whitening:
        """Return the whitening of all directions that the sums know.

        They are found among the eigenvalues of the correlations, whatever scale the coordinates
        have.
        """
        scale = self.matrix.diagonal(dim1=-2, dim2=-1).clamp(min=0).sqrt()
        inverse = torch.where(scale > 0, 1 / scale, 0.0)
        correlations = inverse[..., :, None] * self.matrix * inverse[..., None, :]
        values, vectors = torch.linalg.eigh(correlations)
        known = values > NOISE * values[..., -1:]
        roots = torch.where(known, values, 1.0).sqrt()
        columns = inverse[..., :, None] * vectors * known[..., None, :]
        return Whitening(columns / roots[..., None, :], known.sum(-1))

    @cached_property
    def principal(self) -> Whitening:
        """Return the whitening of the first principal components with 99 % of the variance."""
        values, vectors = torch.linalg.eigh(self.matrix)
        values = values.flip(-1).clamp(min=0)
        vectors = vectors.flip(-1)
        preceding = values.cumsum(-1) - values
        used = (preceding < VARIANCE * values.sum(-1, keepdim=True)) & (values > 0)
        roots = torch.where(used, values, 1.0).sqrt()
        return Whitening(vectors * used[..., None, :] / roots[..., None, :], used.sum(-1))


@dataclass(frozen=True)
class CrossCovariance:
    """The covariance of two sites, and those of each.

    Attributes:
        x, y: of the sites.
        xy: [..., p, q].
        hsic: the unbiased HSIC of x with y, x with x, y with y, where their sums are known.
    """

    x: SiteCovariance
    y: SiteCovariance
    xy: Tensor
    hsic: tuple[Tensor, Tensor, Tensor] | None = None

    @property
    def count(self) -> float:
        """Return the number of tokens."""
        return self.x.count

    @cached_property
    def principal_correlations(self) -> Tensor:
        """Return the canonical correlations [..., k] of the principal components."""
        between = self.x.principal.map.mT @ self.xy @ self.y.principal.map
        rows = max(1, int(self.x.principal.kept.max()))  # what is beyond is zero
        columns = max(1, int(self.y.principal.kept.max()))
        correlations: Tensor = torch.linalg.svdvals(between[..., :rows, :columns])
        return correlations.clamp(max=1.0)

    @cached_property
    def nuclear(self) -> Tensor:
        """Return the sum of singular values [...]."""
        total: Tensor = torch.linalg.svdvals(self.xy).sum(-1)
        return total

    @classmethod
    def of_rows(cls, x: Tensor, y: Tensor) -> Self:
        """Return all pairs of the sites x [S, n, p] and y [T, n, q].

        >>> x = torch.randn(1, 50, 3, dtype=torch.float64)
        >>> pair = CrossCovariance.of_rows(x, x)
        >>> round(float(pair.nuclear / pair.x.nuclear), 6)
        1.0
        """
        count = float(x.shape[1])
        x = x - x.mean(1, keepdim=True)
        y = y - y.mean(1, keepdim=True)
        squares_x = x.square().sum(-1)  # [S, n]
        squares_y = y.square().sum(-1)  # [T, n]
        xx = x.mT @ x
        yy = y.mT @ y
        xy = torch.einsum("snp,tnq->stpq", x, y)

        def hsic(products: Tensor, a: Tensor, b: Tensor, ab: Tensor) -> Tensor:
            # Of centred rows the sums are zero, and with them the terms that contain one.
            p, q = (x.new_zeros(size) for size in products.shape[-2:])
            return unbiased_hsic(CrossSums(count, products, p, q, a.sum(-1), b.sum(-1), ab, p, q))

        between = hsic(xy, squares_x[:, None], squares_y[None], squares_x @ squares_y.T)
        within_x = hsic(xx, squares_x, squares_x, squares_x.square().sum(-1))[:, None]
        within_y = hsic(yy, squares_y, squares_y, squares_y.square().sum(-1))[None]
        return cls(
            SiteCovariance(xx[:, None] / (count - 1), count),
            SiteCovariance(yy[None] / (count - 1), count),
            xy / (count - 1),
            (between, within_x, within_y),
        )
