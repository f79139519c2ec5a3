"""What a measure of similarity is: one class in one file, with its words; most are made of sums, some of a sample."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from headscan.geometry.compare.covariance import CrossCovariance
from headscan.run import Registry

__all__ = ["SIMILARITIES", "MomentMeasure", "RelationMeasure", "SimilarityMeasure", "SimilarityWords"]


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
    """A measure of how alike two sites are on the same tokens. A subclass is registered in `SIMILARITIES`, one a file."""

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


SIMILARITIES: Registry[type[SimilarityMeasure]] = Registry(
    "measure of similarity", "headscan.geometry.compare.measures"
)
"""Every measure of similarity by its name: the files of headscan/geometry/compare/measures, and those of plug-ins."""
