"""Healthy training runs to compare with: the range of each measure over the training of the small
recipes.

`scripts/reference_curves.py` writes `healthy_runs.json`; the page of a run draws these bands behind
the run's own curves.
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from headscan.run import ModelRecord

if TYPE_CHECKING:
    from headscan.training.monitor.readings import Reading
    from headscan.training.records import CurvePoint, GeometrySnapshot

Curves = dict[str, list[tuple[int, float]]]
"""(step, value) pairs by the name of the curve: "loss", "SITE/MEASURE", or "MATRIX/update_MEASURE"
for the last update of a matrix.
"""

MEASURES_OF_FAMILY = {
    "qk_logit_max": ("max", "entropy"),
    "branch_ratio": ("attention_ratio", "mlp_ratio"),
    "gradient_share": ("share",),
    "weight_stable_rank": ("stable_rank", "tail", "row_norm", "relative"),
    "update_stable_rank": ("stable_rank", "tail", "row_norm", "relative"),
}
"""The measures of each family of the monitor that have bands."""

READINGS_PER_FAMILY = 40
"""Readings of a family that a result holds; early steps are denser."""

LARGEST_FACTOR = {
    "depth": 1.0,
    "width": 1.5,
    "vocabulary": 2.0,
    "tokens_a_step": 2.0,
    "planned_steps": 2.0,
}
"""A model is comparable with healthy runs where each size differs by at most this factor."""

_BLOCK_NUMBER = re.compile(r"\.\d+(?=\.)")


@dataclass(frozen=True)
class Band:
    """The range of one measure over healthy runs: `low[i]` to `high[i]` after `tokens[i]` tokens.

    95 % of further runs of this kind are expected inside, one number at a time.
    """

    measure: str
    tokens: list[float]
    low: list[float]
    high: list[float]

    def at(self, token_counts: Sequence[float]) -> list[tuple[float, float] | None]:
        """Return the range after each number of tokens; None outside the readings.

        Between two readings the range is linear in the logarithm of the tokens.
        """
        positions = np.log1p(token_counts)
        log_tokens = np.log1p(self.tokens)
        lows = np.interp(positions, log_tokens, self.low).tolist()
        highs = np.interp(positions, log_tokens, self.high).tolist()

        ranges: list[tuple[float, float] | None] = []
        for count, low, high in zip(token_counts, lows, highs, strict=True):
            covered = self.tokens[0] <= count <= self.tokens[-1]
            ranges.append((low, high) if covered else None)
        return ranges


@dataclass(frozen=True, kw_only=True)
class ReferenceRun:
    """Healthy runs of one recipe and objective, which differ in seed, learning rate and text.

    Attributes:
        about: a sentence that describes the runs.
        planned_steps: steps over which the learning rate warms up and decays.
        runs: number of the runs.
    """

    about: str
    objective: str
    model_class: str
    depth: int
    width: int
    vocabulary: int
    tokens_a_step: int
    planned_steps: int
    runs: int
    bands: list[Band]

    @classmethod
    def of_json(cls, entry: dict[str, Any]) -> ReferenceRun:
        """Return the runs of one entry of the stored file, whose fields are those of the class."""
        bands = [Band(**band) for band in entry["bands"]]
        return cls(**(entry | {"bands": bands}))

    def band(self, measure: str, token_counts: Sequence[float]) -> list[tuple[float, float] | None]:
        """Return the range of a measure after each number of tokens; None where there is none."""
        for band in self.bands:
            if band.measure == measure:
                return band.at(token_counts)
        return [None] * len(token_counts)

    def differences(self, sizes: dict[str, float]) -> list[str]:
        """Return a phrase for each size of a model that is too far from these runs' to compare."""
        phrases = []
        for name, factor in LARGEST_FACTOR.items():
            reference = getattr(self, name)
            if not reference / factor <= sizes[name] <= reference * factor:
                label = name.replace("_", " ")
                phrases.append(f"{label} {sizes[name]:,.0f} (available: {reference:,})")
        return phrases


@cache
def reference_runs() -> tuple[ReferenceRun, ...]:
    """Return all healthy runs that come with headscan."""
    path = files("headscan.training").joinpath("healthy_runs.json")
    stored = json.loads(path.read_text(encoding="utf-8"))
    return tuple(ReferenceRun.of_json(entry) for entry in stored["runs"])


def runs_like(
    model: ModelRecord, tokens_a_step: float = 0, planned_steps: int = 0, objective: str = ""
) -> ReferenceRun | str:
    """Return the healthy runs that a model can be compared with, or the reason why there are none.

    Args:
        tokens_a_step: tokens of a step of the model's training; 0 where that is unknown.
        planned_steps: steps that were planned; 0 where that is unknown.
        objective: objective of the training; empty for any, of which the first is taken.
    """
    reason = f"there are none of {model.model_class or 'its class'}"
    if objective:
        reason += f" by {objective}"
    for reference in reference_runs():
        if reference.model_class != model.model_class:
            continue
        if objective not in ("", reference.objective):
            continue
        sizes = {
            "depth": model.depth or 0,
            "width": model.width or 0,
            "vocabulary": model.vocabulary or 0,
            "tokens_a_step": tokens_a_step or reference.tokens_a_step,
            "planned_steps": planned_steps or reference.planned_steps,
        }
        differences = reference.differences(sizes)
        if not differences:
            return reference
        reason = ", ".join(differences)
    return reason


def curves_of(
    snapshots: Iterable[GeometrySnapshot],
    readings: Iterable[Reading] = (),
    losses: Sequence[CurvePoint] = (),
) -> Curves:
    """Return a run's curves from its geometry, the monitor's readings and the logged losses."""
    curves: dict[str, list[tuple[int, float]]] = defaultdict(list)

    def add(curve: str, step: int, value: float | None) -> None:
        if value is not None and not curve.endswith("_without_first"):
            curves[curve].append((step, value))

    for snapshot in snapshots:
        for row in snapshot.sites:
            for measure in row:
                if measure != "site":
                    add(f"{row.text('site')}/{measure}", snapshot.step, row.number(measure))

    for reading in thinned(readings):
        separator = "/update_" if reading.family == "update_stable_rank" else "/"
        for name, value in reading.values.items():
            add(name.replace("/", separator), reading.step, value)

    previous_step = 0
    for point in losses:
        # A logged loss is the mean over the steps since the last one and belongs in their middle.
        add("loss", (previous_step + point.step) // 2, point.loss)
        previous_step = point.step
    return dict(curves)


def thinned(readings: Iterable[Reading]) -> list[Reading]:
    """Return the readings that a result holds: some steps of each family, measures with bands.

    Numbers of matrices that all blocks (or experts) have are averaged, under a name with `*` in the
    place of the block.
    """
    readings = list(readings)
    thinned_readings = []
    for family, measures in MEASURES_OF_FAMILY.items():
        of_family = [reading for reading in readings if reading.family == family]
        for index in _denser_at_the_start(len(of_family), READINGS_PER_FAMILY):
            reading = of_family[index]
            values = _mean_over_blocks(reading.values, measures)
            thinned_readings.append(replace(reading, values=values))
    return thinned_readings


def _denser_at_the_start(length: int, count: int) -> list[int]:
    """Return at most `count` indices below `length`, spaced quadratically."""
    if length == 0:
        return []
    fractions = [index / (count - 1) for index in range(count)]
    return sorted({round((length - 1) * fraction**2) for fraction in fractions})


def _mean_over_blocks(values: dict[str, float], measures: tuple[str, ...]) -> dict[str, float]:
    groups: dict[str, list[float]] = defaultdict(list)
    for name, value in values.items():
        if name.endswith(measures) and math.isfinite(value):
            groups[_BLOCK_NUMBER.sub(".*", name)].append(value)
    return {name: sum(group) / len(group) for name, group in groups.items()}
