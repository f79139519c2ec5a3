"""The time that intervals and nulls of a comparison will take, from a trial on random numbers."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import combinations

import torch

from headscan.comparison.cells import TESTED_RUN
from headscan.comparison.gathering import SAMPLED_RUN
from headscan.comparison.prepared import COORDINATES, Prepared, similarities
from headscan.comparison.similarity import RelationMeasure, SimilarityMeasure
from headscan.comparison.spread import products_by_group

TRIAL = 1024
"""Tokens of a trial at most: times grow by the square of the sample."""


def sample_seconds(
    sites: Sequence[int], sample: int, measures: Mapping[str, SimilarityMeasure], draws: int
) -> float:
    """Return the seconds that are spent on the sample of a comparison, by the time of one draw of
    permuted windows and of one interval.

    Args:
        sites: the number of sites of each model.
        sample: tokens of the sample.
        draws: draws of all nulls together.
    """
    windows = max(2, min(sample, TRIAL) // SAMPLED_RUN)
    growth = max(1.0, sample / TRIAL) ** 2
    relations = [name for name in measures if isinstance(measures[name], RelationMeasure)]
    interval = _interval_seconds(windows) * len(relations)
    seconds = 0.0
    for first, second in combinations(sites, 2):
        seconds += (first + second + first * second) * interval
        x = _drawn(first, windows, relations)
        y = _drawn(second, windows, relations)
        seconds += draws * _fastest(partial(_draw, x, y, measures))
    return growth * seconds


def _interval_seconds(windows: int) -> float:
    """Return the seconds of one product of relations, with groups of windows left out."""
    table = torch.rand(windows * SAMPLED_RUN, windows * SAMPLED_RUN, dtype=torch.float64)
    groups = torch.eye(windows, dtype=torch.float64)
    return _fastest(lambda: products_by_group(table, table, groups))


def _draw(x: Prepared, y: Prepared, measures: Mapping[str, SimilarityMeasure]) -> None:
    """Compare two models with the windows of one in another order."""
    similarities(x, y.permuted(torch.randperm(y.windows)), measures)


def _drawn(sites: int, windows: int, relations: Sequence[str]) -> Prepared:
    tokens = windows * TESTED_RUN
    coordinates = torch.randn(sites, tokens, COORDINATES, dtype=torch.float64)
    tables = {}
    for name in relations:
        tables[name] = torch.rand(sites, tokens, tokens, dtype=torch.float64)
    return Prepared(windows, coordinates, tables)


def _fastest(work: Callable[[], object]) -> float:
    """Return the seconds of the faster one of two calls: the first makes what is made once."""
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)
