"""Covariances of sites and of pairs of sites, with what several measures of similarity share computed once.

Leading dimensions are batches: one pair, or all pairs of a sample at once ([S, 1, p, p], [1, T, q, q], [S, T, p, q]).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Self

import torch
from jaxtyping import Float
from torch import Tensor

from headscan.run import Registry
from headscan.statistics.gram import CrossSums, unbiased_hsic

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
        return self.matrix.diagonal(dim1=-2, dim2=-1).sum(-1)

    @cached_property
    def nuclear(self) -> Tensor:
        """The sum of singular values [...]: the trace, computed as that of a pair is."""
        found: Tensor = torch.linalg.svdvals(self.matrix).sum(-1)
        return found

    @cached_property
    def norm(self) -> Tensor:
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


# ---- How each sampled token stands to each other at all sites of a model, laid out so that windows can change places fast.

FEW = 20  # one entry in so many at most is not zero: then those alone are looked up
AT_ONCE = 1024  # pairs of windows: what is gathered of them stays in the cache


@dataclass(frozen=True, eq=False)
class Relations:
    """`blocks` [S, windows², m²]: of each site the table of all tokens by all tokens, at length 1, cut by pairs of windows.

    Whole windows change places, so a draw moves blocks of m², not entries; of symmetric tables half of the pairs will do.

    >>> tables = torch.randn(2, 6, 6, generator=torch.Generator().manual_seed(0))
    >>> x = Relations.of(tables, 3)
    >>> order = torch.tensor([2, 0, 1])
    >>> moved = tables.reshape(2, 3, 2, 3, 2)[:, order][:, :, :, order].reshape(2, 6, 6)
    >>> torch.allclose(x.products(x, order), x.products(Relations.of(moved, 3)), atol=1e-6)
    True
    """

    blocks: Tensor
    windows: int

    @classmethod
    def of(cls, tables: Tensor, windows: int) -> Self:
        """Of tables [S, n, n], n tokens in `windows` equal runs."""
        unit = tables / torch.linalg.vector_norm(tables, dim=(1, 2), keepdim=True)
        cut = unit.unflatten(2, (windows, -1)).unflatten(1, (windows, -1)).transpose(2, 3)
        return cls(cut.flatten(1, 2).flatten(2), windows)

    @cached_property
    def symmetric(self) -> bool:
        """Whether every table equals its transpose."""
        size = round(self.blocks.shape[2] ** 0.5)
        cut = self.blocks.unflatten(2, (size, size)).unflatten(1, (self.windows, self.windows))
        return torch.equal(cut, cut.permute(0, 2, 1, 4, 3))

    @cached_property
    def _whole(self) -> tuple[Tensor, Tensor]:
        return torch.cartesian_prod(*[torch.arange(self.windows)] * 2).T, self.blocks

    @cached_property
    def _halves(self) -> tuple[Tensor, Tensor]:
        """Each two windows once [2, pairs], and their blocks [S, pairs, m²], which stand for both."""
        pairs = torch.triu_indices(self.windows, self.windows)
        twice = torch.where(pairs[0] == pairs[1], 1.0, 2.0).to(self.blocks)
        return pairs, self.blocks.index_select(1, self._place(pairs).to(self.blocks.device)) * twice[:, None]

    @cached_property
    def _entries(self) -> tuple[Tensor, Tensor, Tensor, list[int]] | None:
        """Where most entries are zero the others: pair and place in its block [entries], values, and how many a site."""
        found = self.blocks.nonzero()
        if FEW * len(found) > self.blocks.numel():
            return None
        site, pair, place = found.unbind(1)
        values = self.blocks[site, pair, place]
        return pair, place, values, torch.bincount(site, minlength=len(self.blocks)).tolist()

    @cached_property
    def _by_entry(self) -> Tensor:
        return self.blocks.flatten(1).T.contiguous()

    def _place(self, pairs: Tensor) -> Tensor:
        return pairs[0] * self.windows + pairs[1]

    def products(self, other: Relations, order: Tensor | None = None) -> Tensor:
        """The sums of products entry by entry [S, T], float64, the other's windows in this order [windows]."""
        if self._entries is not None:
            pair, place, values, counts = self._entries
            if order is not None:
                pair = self._place(order[torch.stack([pair // self.windows, pair % self.windows])])
            rows = other._by_entry.index_select(0, pair * self.blocks.shape[2] + place) * values[:, None]
            return torch.stack([part.sum(0, dtype=torch.float64) for part in rows.split(counts)])
        pairs, blocks = self._halves if self.symmetric and other.symmetric else self._whole
        taken = self._place(pairs if order is None else order[pairs]).to(blocks.device)
        found = blocks.new_zeros(len(blocks), len(other.blocks), dtype=torch.float64)
        for own, some in zip(blocks.split(AT_ONCE, 1), taken.split(AT_ONCE), strict=True):
            found += own.flatten(1) @ other.blocks.index_select(1, some).flatten(1).T
        return found

    def cosines(self, other: Relations) -> Tensor:
        """The cosines of all pairs of tables [S, T], all of it in float64: of equal ones 1 to its last digits."""
        products = self.blocks.new_zeros(len(self.blocks), len(other.blocks), dtype=torch.float64)
        lengths = [torch.zeros_like(products[:, 0]), torch.zeros_like(products[0])]
        for one, two in zip(self.blocks.split(AT_ONCE, 1), other.blocks.split(AT_ONCE, 1), strict=True):
            x, y = one.flatten(1).double(), two.flatten(1).double()
            products += x @ y.T
            lengths[0] += x.square().sum(1)
            lengths[1] += y.square().sum(1)
        found: Tensor = products / torch.outer(*lengths).sqrt()
        return found

    def by_windows(self, other: Relations | None = None) -> Tensor:
        """The sums of products of each pair of windows, float64: with another's tables [S, T, windows, windows], of each
        table with itself [S, windows, windows]."""
        size = (self.windows, self.windows)
        if other is None:
            found = self.blocks.square().sum(-1)
        else:
            found = torch.bmm(self.blocks.transpose(0, 1), other.blocks.permute(1, 2, 0)).permute(1, 2, 0)
        cut: Tensor = found.double().unflatten(-1, size)
        return cut


# ---- What a measure of similarity is: one class in one file, with its words; most are made of sums, some of a sample.


@dataclass(frozen=True, kw_only=True)
class SimilarityWords:
    """What a measure of similarity says of itself.

    `invariant`: which changes of either side leave it as it is. `tokens`: whether it is of all tokens or of the sample.
    `order`: where it stands, small numbers first.
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
    """A measure of how alike two sites are on the same tokens. A subclass is registered in `SIMILARITIES`."""

    words: ClassVar[SimilarityWords]


class MomentMeasure(SimilarityMeasure):
    """A measure that is a function of the two sites' covariances: exact of all tokens from one pass."""

    @abstractmethod
    def value(self, pair: CrossCovariance) -> Float[Tensor, ...]:
        """The similarity of each pair of a batch; NaN where it is not defined."""


class RelationMeasure(SimilarityMeasure):
    """A measure that compares, of the same tokens, two matrices of tokens by tokens: of a sample."""

    @abstractmethod
    def relation(self, rows: Float[Tensor, "n d"]) -> Float[Tensor, "n n"]:
        """How each token stands to each other; the similarity is the cosine of two such matrices, entry by entry."""


SIMILARITIES: Registry[type[SimilarityMeasure]] = Registry("measure of similarity", "headscan.comparison.measures")
"""Every measure of similarity by its name: headscan/comparison/measures.py, and those of plug-ins."""


# ---- The sampled tokens at all sites of one model, prepared for comparing them with another's many times over.

COORDINATES = 16
"""Principal components of the sample in which measures made of covariances are tested."""


def principal(rows: Tensor, count: int) -> Tensor:
    """The strongest directions [d, k] of the rows [n, d] about their mean, by subspace iteration; k ≤ `count`, d and n."""
    about = rows.double() - rows.double().mean(0)
    kept = min(count, *about.shape)
    start = torch.randn(about.shape[1], kept, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = start.to(about.device)
    for _ in range(3):
        found = torch.linalg.qr(about.T @ (about @ torch.linalg.qr(found).Q)).Q
    _, turn = torch.linalg.eigh((about @ found).T @ (about @ found))
    ordered: Tensor = found @ turn.flip(1)
    return ordered


@dataclass(frozen=True)
class Prepared:
    """S sites of one model, of the same n tokens, `windows` equal runs of neighbours.

    `coordinates` [S, n, k] on principal components, `covariance` of these, `relations` by name; of those that are permuted
    the windows are in this `order`.
    """

    windows: int
    coordinates: Tensor
    covariance: SiteCovariance
    relations: Mapping[str, Relations]
    order: Tensor | None = None

    @classmethod
    def of(cls, sites: Sequence[Tensor], measures: Mapping[str, SimilarityMeasure]) -> Self:
        """From rows [windows, m, d] of each site."""
        flat = [rows.flatten(0, 1) for rows in sites]
        coordinates = []
        for rows in flat:
            found = (rows.double() - rows.double().mean(0)) @ principal(rows, COORDINATES)
            coordinates.append(torch.nn.functional.pad(found, (0, COORDINATES - found.shape[1])))
        return cls.on(len(sites[0]), torch.stack(coordinates), flat, measures)

    @classmethod
    def on(
        cls, windows: int, coordinates: Tensor, rows: Sequence[Tensor], measures: Mapping[str, SimilarityMeasure]
    ) -> Self:
        """From coordinates [S, n, k], and rows [n, d] of each site, of which the relations are taken."""
        about = coordinates - coordinates.mean(1, keepdim=True)
        count = float(about.shape[1])
        covariance = SiteCovariance(about.mT @ about / (count - 1), count)
        for name in ("whitened", "principal", "nuclear", "trace", "norm"):  # once, for all pairs and draws
            getattr(covariance, name)
        relations = {
            name: Relations.of(torch.stack([measure.relation(one) for one in rows]), windows)
            for name, measure in measures.items()
            if isinstance(measure, RelationMeasure)
        }
        return cls(windows, coordinates, covariance, relations)

    def permuted(self, order: Tensor) -> Self:
        """The same with the windows in another order [windows]."""
        moved = self.coordinates.unflatten(1, (self.windows, -1)).index_select(1, order.to(self.coordinates.device))
        return replace(self, coordinates=moved.flatten(1, 2), order=order)


def alike(x: Prepared, y: Prepared, measures: Mapping[str, SimilarityMeasure]) -> dict[str, Tensor]:
    """Each measure of all pairs of sites [S, T], x in the order of the text: of the relations as they are, of covariances
    on the coordinates."""
    pair = CrossCovariance.of_rows(x.coordinates, y.coordinates, (x.covariance, y.covariance))
    found: dict[str, Tensor] = {}
    for name, measure in measures.items():
        if isinstance(measure, MomentMeasure):
            found[name] = measure.value(pair)
        else:
            found[name] = x.relations[name].products(y.relations[name], y.order)
    return found
