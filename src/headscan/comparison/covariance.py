"""Covariances of sites and of pairs of sites, and what a measure of similarity is.

Leading dimensions are batches: one pair, or all pairs of a sample at once ([S, 1, p, p], [1, T, q,
q], [S, T, p, q]).
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import torch
from jaxtyping import Float
from torch import Tensor

from headscan.run import Registry
from headscan.statistics.hsic import CrossSums, unbiased_hsic

VARIANCE = 0.99  # kept by the SV in SVCCA
# Of the correlation matrix, beside its largest: sums of float32 products know no smaller
# eigenvalue.
NOISE = 1e-6


@dataclass(frozen=True)
class Whitening:
    """`map` [..., d, d] takes centred vectors to uncorrelated coordinates of variance 1, zero
    beyond `kept` [...].
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
        """The sum of singular values [...]: the trace, computed as that of a pair is."""
        total: Tensor = torch.linalg.svdvals(self.matrix).sum(-1)
        return total

    @cached_property
    def norm(self) -> Tensor:
        return self.matrix.square().sum((-2, -1)).sqrt()

    @cached_property
    def top_share(self) -> Tensor:
        """Share of the variance on the strongest direction [...]."""
        share: Tensor = torch.linalg.eigvalsh(self.matrix)[..., -1] / self.matrix.diagonal(
            dim1=-2, dim2=-1
        ).sum(-1)
        return share

    @cached_property
    def whitened(self) -> Whitening:
        """All directions that the sums know: whatever scale the coordinates have, eigenvalues of
        their correlations.
        """
        scale = self.matrix.diagonal(dim1=-2, dim2=-1).clamp(min=0).sqrt()
        inverse = torch.where(scale > 0, 1 / scale, 0.0)
        values, vectors = torch.linalg.eigh(
            inverse[..., :, None] * self.matrix * inverse[..., None, :]
        )
        kept = values > NOISE * values[..., -1:]
        roots = torch.where(kept, values, 1.0).sqrt()
        return Whitening(
            inverse[..., :, None] * vectors * kept[..., None, :] / roots[..., None, :], kept.sum(-1)
        )

    @cached_property
    def principal(self) -> Whitening:
        """The first principal components that hold 99 % of the variance."""
        values, vectors = torch.linalg.eigh(self.matrix)
        values = values.flip(-1).clamp(min=0)
        vectors = vectors.flip(-1)
        before = values.cumsum(-1) - values
        kept = (before < VARIANCE * values.sum(-1, keepdim=True)) & (values > 0)
        roots = torch.where(kept, values, 1.0).sqrt()
        return Whitening(vectors * kept[..., None, :] / roots[..., None, :], kept.sum(-1))


@dataclass(frozen=True)
class CrossCovariance:
    """The covariance xy [..., p, q] of two sites, and theirs; `hsic` holds the unbiased HSIC of x
    with y, x with x, y with y, where the sums for it were kept.
    """

    x: SiteCovariance
    y: SiteCovariance
    xy: Tensor
    hsic: tuple[Tensor, Tensor, Tensor] | None = None

    @property
    def count(self) -> float:
        return self.x.count

    @cached_property
    def principal_correlations(self) -> Tensor:
        """Canonical correlations [..., k] of the principal components alone."""
        between = self.x.principal.map.mT @ self.xy @ self.y.principal.map
        # what is beyond is zero
        used = [max(1, int(site.principal.kept.max())) for site in (self.x, self.y)]
        correlations: Tensor = torch.linalg.svdvals(between[..., : used[0], : used[1]]).clamp(
            max=1.0
        )
        return correlations

    @cached_property
    def nuclear(self) -> Tensor:
        """The sum of singular values [...]."""
        total: Tensor = torch.linalg.svdvals(self.xy).sum(-1)
        return total

    @classmethod
    def of_rows(cls, x: Tensor, y: Tensor) -> Self:
        """All pairs of the sites x [S, n, p] and y [T, n, q].

        >>> x = torch.randn(1, 50, 3, dtype=torch.float64)
        >>> pair = CrossCovariance.of_rows(x, x)
        >>> round(float(pair.nuclear / pair.x.nuclear), 6)
        1.0
        """
        count = float(x.shape[1])
        x = x - x.mean(1, keepdim=True)
        y = y - y.mean(1, keepdim=True)
        # [S, n], [T, n]
        a = x.square().sum(-1)
        b = y.square().sum(-1)
        xx = x.mT @ x
        yy = y.mT @ y
        xy = torch.einsum("snp,tnq->stpq", x, y)

        def hsic(products: Tensor, a: Tensor, b: Tensor, ab: Tensor) -> Tensor:
            # Of centred rows the sums are zero, and with them the terms that hold one.
            p, q = (x.new_zeros(size) for size in products.shape[-2:])
            return unbiased_hsic(CrossSums(count, products, p, q, a.sum(-1), b.sum(-1), ab, p, q))

        debiased = (
            hsic(xy, a[:, None], b[None], a @ b.T),
            hsic(xx, a, a, a.square().sum(-1))[:, None],
            hsic(yy, b, b, b.square().sum(-1))[None],
        )
        sites = (
            SiteCovariance(xx[:, None] / (count - 1), count),
            SiteCovariance(yy[None] / (count - 1), count),
        )
        return cls(*sites, xy / (count - 1), debiased)


# ---- What a measure of similarity is: one class with its words; most are made of sums, some of a sample.


@dataclass(frozen=True, kw_only=True)
class SimilarityWords:
    """What a measure of similarity says of itself.

    `invariant`: which changes of either side leave it as it is. `tokens`: whether it is of all
    tokens or of the sample. `order`: where it stands, small numbers first.
    """

    title: str
    sentence: str
    formula: str
    range: tuple[float, float]
    invariant: str
    source: str
    cost: str
    tokens: str = "all"
    symmetric: bool = True
    order: int = 100


class SimilarityMeasure(ABC):
    """A measure of how alike two sites are on the same tokens. A subclass is registered in
    `SIMILARITIES`.
    """

    words: ClassVar[SimilarityWords]


class MomentMeasure(SimilarityMeasure):
    """A measure that is a function of the two sites' covariances: exact of all tokens from one
    pass.
    """

    @abstractmethod
    def value(self, pair: CrossCovariance) -> Float[Tensor, "..."]:
        """The similarity of each pair of a batch; NaN where it is not defined."""


class RelationMeasure(SimilarityMeasure):
    """A measure that compares, of the same tokens, two matrices of tokens by tokens: of a sample."""

    @abstractmethod
    def relation(self, rows: Float[Tensor, "n d"]) -> Float[Tensor, "n n"]:
        """How each token stands to each other; the similarity is the cosine of two such matrices,
        entry by entry.
        """


SIMILARITIES: Registry[type[SimilarityMeasure]] = Registry(
    "measure of similarity", "headscan.comparison.measures"
)
"""Every measure of similarity by its name: headscan/comparison/measures.py, and those of plug-ins.
"""


# ---- The sampled tokens at all sites of one model, prepared for comparing them with another's many times over.

COORDINATES = 16
"""Principal components of the sample in which measures made of covariances are tested."""


def principal(rows: Tensor, count: int) -> Tensor:
    """The strongest directions [d, k] of the rows [n, d] about their mean, by subspace iteration; k
    ≤ `count`, d and n.
    """
    centred = rows.double() - rows.double().mean(0)
    kept = min(count, *centred.shape)
    start = torch.randn(
        centred.shape[1], kept, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    basis = start.to(centred.device)
    for _ in range(3):
        basis = torch.linalg.qr(centred.T @ (centred @ torch.linalg.qr(basis).Q)).Q
    _, turn = torch.linalg.eigh((centred @ basis).T @ (centred @ basis))
    ordered: Tensor = basis @ turn.flip(1)
    return ordered


@dataclass(frozen=True)
class Prepared:
    """S sites of one model, of the same n tokens in `windows` equal runs of neighbours:
    `coordinates` [S, n, 16] on principal components, and `relations` [S, n, n] at length 1, by the
    measure's name; all on the CPU.
    """

    windows: int
    coordinates: Tensor
    relations: Mapping[str, Tensor]

    @classmethod
    def of(cls, sites: Sequence[Tensor], measures: Mapping[str, SimilarityMeasure]) -> Self:
        """From rows [windows, m, d] of each site."""
        flat = [rows.flatten(0, 1).cpu() for rows in sites]
        coordinates = []
        for rows in flat:
            reduced = (rows.double() - rows.double().mean(0)) @ principal(rows, COORDINATES)
            coordinates.append(
                torch.nn.functional.pad(reduced, (0, COORDINATES - reduced.shape[1]))
            )
        relations = {}
        for name, measure in measures.items():
            if isinstance(measure, RelationMeasure):
                tables = torch.stack([measure.relation(rows).double() for rows in flat])
                relations[name] = torch.nn.functional.normalize(tables.flatten(1), dim=1).view_as(
                    tables
                )
        return cls(len(sites[0]), torch.stack(coordinates), relations)

    def permuted(self, order: Tensor) -> Self:
        """The same with the windows in another order [windows]."""
        index = (
            torch.arange(self.coordinates.shape[1])
            .unflatten(0, (self.windows, -1))[order]
            .flatten()
        )
        relations = {
            name: tables[:, index[:, None], index] for name, tables in self.relations.items()
        }
        return type(self)(self.windows, self.coordinates[:, index], relations)


def alike(x: Prepared, y: Prepared, measures: Mapping[str, SimilarityMeasure]) -> dict[str, Tensor]:
    """Each measure of all pairs of sites [S, T]: of the relations as they are, of covariances on
    the coordinates.
    """
    pair = CrossCovariance.of_rows(x.coordinates, y.coordinates)
    found = {
        name: measure.value(pair)
        for name, measure in measures.items()
        if isinstance(measure, MomentMeasure)
    }
    return found | {
        name: one.flatten(1) @ y.relations[name].flatten(1).T for name, one in x.relations.items()
    }
