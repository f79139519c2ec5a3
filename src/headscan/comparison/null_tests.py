"""Tests of similarities against nulls: the statistic of the sample, its draws, and p values."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.stats import false_discovery_control
from torch import Tensor

from headscan.comparison.nulls import NullModel, NullTask
from headscan.comparison.prepared import similarities
from headscan.comparison.result import NullTest, SimilarityCell
from headscan.run import BadInput
from headscan.statistics.uncertainty import Floats

FEWEST_DRAWS = 19
"""With fewer draws no p is below 0.05."""

ROUNDING = 1e-9
"""A draw that differs from the statistic by so little, relatively, counts as equal."""


@dataclass(frozen=True)
class NullTests:
    """The nulls that cells are tested against, how often each is drawn, and with which seed."""

    nulls: Mapping[str, NullModel]
    draws: int
    seed: int

    def __post_init__(self) -> None:
        if self.draws < FEWEST_DRAWS:
            raise BadInput(f"--draws must be {FEWEST_DRAWS} at least, not {self.draws}.")


def tested(
    name: str, null: NullModel, task: NullTask, progress: Callable[[int], None]
) -> dict[str, list[list[NullTest]]]:
    """Return, by measure, the test [S][T] of every pair of sites against one null."""
    observed_and_draws: list[dict[str, Tensor]] = []
    for x, y in null.pairs(task):
        observed_and_draws.append(similarities(x, y, task.measures))
        progress(len(observed_and_draws) - 1)
    if len(observed_and_draws) < 2:
        return {measure: untested(name, len(task.x), len(task.y)) for measure in task.measures}
    tests = {}
    for measure in task.measures:
        tables = [values[measure] for values in observed_and_draws]
        values = torch.stack(tables).double().numpy()  # [1 + draws, S, T]
        tests[measure] = _tests_of_sites(name, values)
    return tests


def untested(null: str, sites_of_first: int, sites_of_second: int) -> list[list[NullTest]]:
    """Return empty tests [S][T] of a null that cannot be drawn."""
    return [[NullTest(null=null)] * sites_of_second for _ in range(sites_of_first)]


def _tests_of_sites(null: str, values: Floats) -> list[list[NullTest]]:
    _, sites_of_first, sites_of_second = values.shape
    tests = []
    for s in range(sites_of_first):
        tests.append([_test(null, values[:, s, t]) for t in range(sites_of_second)])
    return tests


def _test(null: str, values: Floats) -> NullTest:
    """Return the test of one cell; `values` [1 + draws] begins with the observed statistic."""
    if not np.isfinite(values).all():
        return NullTest(null=null)
    statistic = float(values[0])
    draws = values[1:]
    tolerance = ROUNDING * max(1.0, abs(statistic))
    reached = int((draws >= statistic - tolerance).sum())
    return NullTest(
        null=null,
        statistic=statistic,
        mean=float(draws.mean()),
        threshold=float(np.quantile(draws, 0.95)),
        draws=len(draws),
        p=(1 + reached) / (len(draws) + 1),
    )


def adjusted(
    cells: Sequence[SimilarityCell], nulls: Mapping[str, NullModel]
) -> list[SimilarityCell]:
    """Return the cells with p values adjusted by Benjamini and Hochberg, null by null.

    The p values of a cell itself are those of the first null. When those below α are called
    discoveries, at most α of them are false on average, where the tests are independent or
    positively dependent, as those of neighbouring layers are.
    """
    adjusted_p = {name: _adjusted_p(cells, name) for name in nulls}
    rows = []
    for number, cell in enumerate(cells):
        tests = []
        for test in cell.tests:
            tests.append(replace(test, p_adjusted=adjusted_p[test.null].get(number)))
        first = tests[0] if tests else NullTest(null="")
        rows.append(replace(cell, tests=tests, p=first.p, p_adjusted=first.p_adjusted))
    return rows


def _adjusted_p(cells: Sequence[SimilarityCell], null: str) -> dict[int, float]:
    """Return the adjusted p values of one null, by the numbers of the cells."""
    known: dict[int, float] = {}
    for number, cell in enumerate(cells):
        for test in cell.tests:
            if test.null == null and test.p is not None:
                known[number] = test.p
    if not known:
        return {}
    values = false_discovery_control(list(known.values())).tolist()
    return dict(zip(known, values, strict=True))
