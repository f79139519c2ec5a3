"""The sampled tokens at all sites of one model, prepared for comparing them with another's many times over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from headscan.geometry.compare.covariance import CrossCovariance, SiteCovariance
from headscan.geometry.compare.relations import Relations
from headscan.geometry.compare.similarity import MomentMeasure, RelationMeasure, SimilarityMeasure

__all__ = ["COORDINATES", "Prepared", "alike", "principal"]

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
