"""Mergeable statistics of vectors: the sums that one pass over a text leaves, in memory that does
not grow with it.

Every accumulator is a commutative monoid: ``update`` adds a batch, ``merge`` adds another
accumulator, and any split of the data, in any order, on any number of processes, gives the same
result (to the rounding of float64 sums). This package knows tensors; it knows no language model.
"""

from headscan.statistics.accumulator import Accumulator
from headscan.statistics.blocks import Blocks
from headscan.statistics.classes import ClassSums
from headscan.statistics.cloud import Cloud, Vectors
from headscan.statistics.clusters import Series
from headscan.statistics.counts import TokenCounts
from headscan.statistics.distributed import merged, process_count, process_rank, same_everywhere
from headscan.statistics.gram import Gram
from headscan.statistics.part_sums import PartSums
from headscan.statistics.reservoir import Reservoir
from headscan.statistics.site import NonFinite, SiteStatistics
from headscan.statistics.sums import Sums
from headscan.statistics.tally import (
    ContextTally,
    DirectionTally,
    FollowTally,
    SiteBatch,
    Tally,
)

__all__ = [
    "Accumulator",
    "Blocks",
    "ClassSums",
    "Cloud",
    "ContextTally",
    "DirectionTally",
    "FollowTally",
    "Gram",
    "NonFinite",
    "PartSums",
    "Reservoir",
    "Series",
    "SiteBatch",
    "SiteStatistics",
    "Sums",
    "Tally",
    "TokenCounts",
    "Vectors",
    "merged",
    "process_count",
    "process_rank",
    "same_everywhere",
]


def __dir__() -> list[str]:
    return __all__
