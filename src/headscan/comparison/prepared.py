"""The sampled tokens of one model, prepared to be compared with another's many times."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from headscan.comparison.covariance import CrossCovariance
from headscan.comparison.similarity import MomentMeasure, RelationMeasure, SimilarityMeasure

COORDINATES = 16
"""Principal components of the sample in which measures made of covariances are tested."""

ITERATIONS = 3


def principal(rows: Tensor, count: int) -> Tensor:
    """Return the strongest directions [d, k] of the rows [n, d] about their mean.

    They are found by subspace iteration; k ≤ `count`, d and n.
    """
    centred = rows.double() - rows.double().mean(0)
    width = centred.shape[1]
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(width, min(count, *centred.shape), generator=generator, dtype=torch.float64)
    basis = start.to(centred.device)
    for _ in range(ITERATIONS):
        basis = torch.linalg.qr(centred.T @ (centred @ torch.linalg.qr(basis).Q)).Q
    projected = centred @ basis
    _, rotation = torch.linalg.eigh(projected.T @ projected)
    ordered: Tensor = basis @ rotation.flip(1)
    return ordered


@dataclass(frozen=True)
class Prepared:
    """The sites of one model on the same n sampled tokens; all is on the CPU.

    Attributes:
        windows: the tokens are in so many equal runs of neighbours.
        coordinates: [S, n, 16], on principal components.
        relations: [S, n, n] at length 1, by the name of the measure.
    """

    windows: int
    coordinates: Tensor
    relations: Mapping[str, Tensor]

    @classmethod
    def of(cls, sites: Sequence[Tensor], measures: Mapping[str, SimilarityMeasure]) -> Self:
        """Return the sites of a model from the rows [windows, m, d] of each."""
        rows_of_site = [rows.flatten(0, 1).cpu() for rows in sites]
        coordinates = torch.stack([_coordinates(rows) for rows in rows_of_site])
        relations = {}
        for name, measure in measures.items():
            if isinstance(measure, RelationMeasure):
                tables = torch.stack([measure.relation(rows).double() for rows in rows_of_site])
                flat = torch.nn.functional.normalize(tables.flatten(1), dim=1)
                relations[name] = flat.view_as(tables)
        return cls(len(sites[0]), coordinates, relations)

    def permuted(self, order: Tensor) -> Self:
        """Return the same sites with the windows in another order [windows]."""
        tokens = torch.arange(self.coordinates.shape[1])
        index = tokens.unflatten(0, (self.windows, -1))[order].flatten()
        relations = {}
        for name, tables in self.relations.items():
            relations[name] = tables[:, index[:, None], index]
        return type(self)(self.windows, self.coordinates[:, index], relations)


def _coordinates(rows: Tensor) -> Tensor:
    """Return rows on their principal components [n, 16], zero beyond their number."""
    centred = rows.double() - rows.double().mean(0)
    reduced = centred @ principal(rows, COORDINATES)
    return torch.nn.functional.pad(reduced, (0, COORDINATES - reduced.shape[1]))


def similarities(
    x: Prepared, y: Prepared, measures: Mapping[str, SimilarityMeasure]
) -> dict[str, Tensor]:
    """Return each measure of all pairs of sites [S, T].

    Measures made of covariances are of the coordinates.
    """
    pair = CrossCovariance.of_rows(x.coordinates, y.coordinates)
    values = {}
    for name, measure in measures.items():
        if isinstance(measure, MomentMeasure):
            values[name] = measure.value(pair)
    for name, relation in x.relations.items():
        values[name] = relation.flatten(1) @ y.relations[name].flatten(1).T
    return values
