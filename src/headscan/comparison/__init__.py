"""Are two the same? SimilarityMeasure of representations, site against site, with intervals and
nulls.
"""

from headscan.comparison.covariance import (
    SIMILARITIES,
    MomentMeasure,
    RelationMeasure,
    SimilarityMeasure,
    SimilarityWords,
)
from headscan.comparison.nulls import NULLS, NullModel, NullTask, NullWords
from headscan.comparison.result import CompareResult, DamageResult, NullTest, SimilarityCell
from headscan.comparison.run import compare

__all__ = [
    "NULLS",
    "SIMILARITIES",
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
