"""Cells held against nulls: the statistic on the sample, its draws, p values, and their correction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from headscan.geometry.compare.corrections import benjamini_hochberg
from headscan.geometry.compare.null import NullModel, NullTask
from headscan.geometry.compare.prepared import alike
from headscan.geometry.compare.result import NullTest, SimilarityCell

__all__ = ["TESTED_RUN", "adjusted", "tested", "thinned"]

TESTED_RUN = 8  # of the tokens of a sampled window


def thinned(rows: Tensor) -> Tensor:
    """The part of the sampled rows [windows, m, d] that nulls are drawn of: every k-th token of a window, about eight."""
    return rows[:, :: max(1, rows.shape[1] // TESTED_RUN)]


def tested(
    name: str, null: NullModel, task: NullTask, progress: Callable[[int], None]
) -> dict[str, list[list[NullTest]]]:
    """Every measure of every pair of sites [S][T] against one null."""
    observed: dict[str, Tensor] | None = None
    draws: list[dict[str, Tensor]] = []
    for x, y in null.pairs(task):
        found = alike(x, y, task.measures)
        if observed is None:
            observed = found
        else:
            draws.append(found)
            progress(len(draws))
    if observed is None or not draws:
        return {measure: [[NullTest(null=name) for _ in task.y] for _ in task.x] for measure in task.measures}
    return {
        measure: _each(name, observed[measure], torch.stack([draw[measure] for draw in draws]))
        for measure in task.measures
    }


def _each(name: str, observed: Tensor, draws: Tensor) -> list[list[NullTest]]:
    return [
        [_one(name, float(observed[s, t]), draws[:, s, t]) for t in range(draws.shape[2])]
        for s in range(draws.shape[1])
    ]


def _one(name: str, statistic: float, draws: Tensor) -> NullTest:
    values = draws.double().numpy()
    if not np.isfinite(statistic) or not np.isfinite(values).all():
        return NullTest(null=name)
    # A draw that differs by rounding alone counts as equal.
    reached = int((values >= statistic - 1e-9 * max(1.0, abs(statistic))).sum())
    return NullTest(
        null=name, statistic=statistic, mean=float(values.mean()), threshold=float(np.quantile(values, 0.95)),
        draws=len(values), p=(1 + reached) / (len(values) + 1),
    )  # fmt: skip


def adjusted(cells: Sequence[SimilarityCell], nulls: Mapping[str, NullModel]) -> list[SimilarityCell]:
    """The cells with their p values corrected, null by null, over all cells; the first null's stand in the cell itself."""
    corrected: dict[tuple[int, str], float] = {}
    for name in nulls:
        known = [
            (k, test.p)
            for k, cell in enumerate(cells)
            for test in cell.tests
            if test.null == name and test.p is not None
        ]
        for (k, _), p in zip(known, benjamini_hochberg([p for _, p in known]), strict=True):
            corrected[k, name] = p
    found = []
    for k, cell in enumerate(cells):
        tests = [replace(test, p_adjusted=corrected.get((k, test.null))) for test in cell.tests]
        first = tests[0] if tests else NullTest(null="")
        found.append(replace(cell, tests=tests, p=first.p, p_adjusted=first.p_adjusted))
    return found
