"""Numbers of a sample of each site's vectors: with intervals from its blocks, and beside Gaussian vectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from headscan.geometry.explained import Cells, Field
from headscan.geometry.interval import left_out
from headscan.geometry.probe_setup import ProbeData

__all__ = ["sampled_rows"]


def sampled_rows(
    data: ProbeData, fields: Mapping[str, Field], measure: Callable[[npt.NDArray[np.float64]], Cells], points: int
) -> list[Cells]:
    """One row a site of what `measure` says of at most `points` sampled vectors [n, d], and a last one of Gaussian noise.

    Intervals come from leaving the vectors of one block of the text out after another, so `measure` runs once a block more.
    """
    rows: list[Cells] = []
    shape = (0, 0)
    for site in data.clouds:
        states = data.sample.get(site)
        row: Cells = {"site": site} | dict.fromkeys(fields)
        if states is not None:
            x, blocks = states[:points].double().numpy(), data.blocks[: min(points, len(states))]
            row |= measure(x)
            shape = max(shape, x.shape)
            names, counts = np.unique(blocks, return_counts=True)
            parts, sizes = [measure(x[blocks != one]) for one in names], [float(count) for count in counts]
            for name, field in fields.items():
                others = [_number(part[name]) for part in parts]
                row[f"{name}_interval"] = left_out(_number(row[name]), others, sizes, bounds=field.range)
        rows.append(row)
    if shape[0]:
        noise = np.random.default_rng(list(shape)).standard_normal(shape)
        null: Cells = {"site": f"{shape[0]} x {shape[1]}", "null": "gaussian"}
        rows.append(null | measure(noise))
    return rows


def _number(value: object) -> float | None:
    return value if isinstance(value, float) else None
