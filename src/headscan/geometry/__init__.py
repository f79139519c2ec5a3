"""What shape do the representations have? Measures from finished statistics, and the scan that brings them together."""

from headscan.geometry.cone import average_cosine, mean_norm, mean_vector_norm
from headscan.geometry.interval import Jackknife
from headscan.geometry.measure import MEASURES, Measure, measure
from headscan.geometry.result import ScanResult
from headscan.geometry.scan import scan
from headscan.geometry.spectrum import (
    effective_rank,
    isoscore,
    participation_ratio,
    singular_values,
    top_direction_share,
)
from headscan.statistics import Cloud

__all__ = [
    "MEASURES",
    "Cloud",
    "Jackknife",
    "Measure",
    "ScanResult",
    "average_cosine",
    "effective_rank",
    "isoscore",
    "mean_norm",
    "mean_vector_norm",
    "measure",
    "participation_ratio",
    "scan",
    "singular_values",
    "top_direction_share",
]
