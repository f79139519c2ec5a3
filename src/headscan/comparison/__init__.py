"""Comparisons of models: the similarity of representations with intervals and nulls, and the damage
of rounding.
"""

from headscan.comparison.nulls import NULLS, NullModel, NullTask, NullWords
from headscan.comparison.result import (
    ChangesResult,
    CompareResult,
    DamageResult,
    NullTest,
    SimilarityCell,
)
from headscan.comparison.run import compare
from headscan.comparison.similarity import (
    SIMILARITIES,
    MomentMeasure,
    RelationMeasure,
    SimilarityMeasure,
    SimilarityWords,
)

__all__ = [
    "NULLS",
    "SIMILARITIES",
    "ChangesResult",
    "CompareResult",
    "DamageResult",
    "MomentMeasure",
    "NullModel",
    "NullTask",
    "NullTest",
    "NullWords",
    "RelationMeasure",
    "SimilarityCell",
    "SimilarityMeasure",
    "SimilarityWords",
    "compare",
]


def __dir__() -> list[str]:
    return __all__
