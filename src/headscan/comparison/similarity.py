"""Measures of similarity: a class for each, made of covariances or of a sample of tokens."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from headscan.comparison.covariance import CrossCovariance
from headscan.run import Registry


@dataclass(frozen=True, kw_only=True)
class SimilarityWords:
    """The description of a measure of similarity.

    Attributes:
        invariant: the changes of either side that leave it as it is.
        tokens: all, or sample.
        order: its place in tables, small numbers first.
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
    """A measure of how similar two sites are on the same tokens.

    A subclass is registered in `SIMILARITIES`.
    """

    words: ClassVar[SimilarityWords]


class MomentMeasure(SimilarityMeasure):
    """A function of the covariances of two sites: exact, of all tokens, from one pass."""

    @abstractmethod
    def value(self, pair: CrossCovariance) -> Float[Tensor, "..."]:
        """Return the similarity of each pair of a batch; NaN where it is not defined."""


class RelationMeasure(SimilarityMeasure):
    """A comparison of two matrices of tokens by tokens, of the same tokens of a sample."""

    @abstractmethod
    def relation(self, rows: Float[Tensor, "n d"]) -> Float[Tensor, "n n"]:
        """Return the relation of each token to each other.

        The similarity is the cosine of two such matrices, entry by entry.
        """


SIMILARITIES: Registry[type[SimilarityMeasure]] = Registry(
    "measure of similarity", "headscan.comparison.measures"
)
"""Every measure of similarity by its name: headscan/comparison/measures.py, and those of plug-ins.
"""
