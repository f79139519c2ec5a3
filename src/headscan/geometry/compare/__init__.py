"""Are two the same? SimilarityMeasure of representations, site against site, with intervals and nulls."""

from headscan.geometry.compare.null import NULLS, NullModel, NullTask, NullWords
from headscan.geometry.compare.result import CompareResult, NullTest, SimilarityCell
from headscan.geometry.compare.run import compare
from headscan.geometry.compare.settings import ComparisonSettings
from headscan.geometry.compare.similarity import (
    SIMILARITIES,
    MomentMeasure,
    RelationMeasure,
    SimilarityMeasure,
    SimilarityWords,
)

__all__ = [
    "NULLS", "SIMILARITIES", "CompareResult", "ComparisonSettings", "MomentMeasure", "NullModel", "NullTask", "NullTest",
    "NullWords", "RelationMeasure", "SimilarityCell", "SimilarityMeasure", "SimilarityWords", "compare",
]  # fmt: skip
