"""A run's own curves beside the bands of healthy runs.

It is a section on the page of a training run, and on the page of a scan of several checkpoints.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from headscan.report.kit import Figure, Panels, Prose, Section, palette, section
from headscan.report.kit.figures import lines
from headscan.report.kit.parts import Part
from headscan.report.pages.scan_checkpoints import checkpoints
from headscan.report.pages.scan_layers import add_band, of_model
from headscan.run import Row
from headscan.training.healthy_runs import Curves, ReferenceRun, curves_of, runs_like
from headscan.training.records import GeometrySnapshot

if TYPE_CHECKING:
    from headscan.scanner.result import ScanResult
    from headscan.training.result import TrainResult

    Distances = dict[str, list[tuple[int, float]]]

TITLE = "Beside healthy runs"
LAST_BLOCK_MEASURES = (
    "average_cosine",
    "effective_rank",
    "top_direction_share",
    "mean_norm",
    "entropy",
    "max",
    "attention_ratio",
    "mlp_ratio",
)
# These hardly depend on the text's length; ranks do.
FIELDS_OF_ANY_TEXT = ("site", "average_cosine", "top_direction_share", "mean_norm")
STEP_IN_NAME = re.compile(r"(?:^|[-_@/])(?:checkpoint|step|global_step)[-_]?(\d+)$")
MOST_OUTSIDE = 3  # curves outside their bands that are named and drawn
SERIES_NOTE = (
    " Ranks are left out, because they grow with the length of the text. A step is taken to have "
    "as many tokens as a step of the healthy runs."
)


@section("train", 32)
def run_beside(result: TrainResult) -> Section | None:
    """Return a run beside healthy runs of its size."""
    if not result.scan:
        return None
    tokens_a_step = result.tokens / max(1, result.steps)
    curves = curves_of(result.scan, result.readings, result.curve)
    model = result.models[0]
    runs = runs_like(model, tokens_a_step, result.recipe.steps, result.objective.name)
    if isinstance(runs, str):
        return _not_comparable(runs)
    return _beside(curves, runs, tokens_a_step)


@section("scan", 46)
def series_beside(result: ScanResult) -> Section | None:
    """Return a series of checkpoints, whose names tell their steps, beside healthy runs."""
    snapshots = []
    step_count = 0
    for name in checkpoints(result):
        match = STEP_IN_NAME.search(name)
        if match is None:
            continue
        step_count += 1
        for row in of_model(result.sites, name):
            site = Row({field: row.get(field) for field in FIELDS_OF_ANY_TEXT})
            snapshots.append(GeometrySnapshot(step=int(match[1]), sites=[site]))
    if step_count < 3:
        return None
    runs = runs_like(result.models[-1])
    if isinstance(runs, str):
        return _not_comparable(runs)
    return _beside(curves_of(snapshots), runs, runs.tokens_a_step, SERIES_NOTE)


def _not_comparable(reason: str) -> Section:
    sentence = f"No reference curves of healthy runs: {reason}."
    return Section(TITLE, parts=[Prose(sentence)])


def _beside(curves: Curves, runs: ReferenceRun, tokens_a_step: float, note: str = "") -> Section:
    """Say how many numbers lie in the bands, and draw the curves over their bands."""
    distances = _distances(curves, runs, tokens_a_step)
    latest = _latest(distances)
    outside = [name for name, distance in latest.items() if distance > 1]
    outside.sort(key=lambda name: -latest[name])
    figures: list[Figure] = []
    for name in _names_to_draw(distances, runs, outside):
        draw = partial(_curve_over_band, curves[name], runs, name, tokens_a_step)
        title = name.replace("/", " ")
        figures.append(Figure(f"beside-{len(figures)}", draw, name, height=210, title=title))
    parts: list[Part] = [
        Prose(_summary(distances, latest, outside, runs)),
        Prose(f"{runs.about}.{note}", where="page"),
        Panels(figures, "The bands are those of the healthy runs.", small=True),
    ]
    lead = (
        "Is a number usual at this step? A band should hold 95 % of further runs (*: mean of "
        "blocks)."
    )
    return Section(TITLE, lead, parts)


def _bands(
    runs: ReferenceRun, curve_name: str, steps: Sequence[int], tokens_a_step: float
) -> list[tuple[float, float] | None]:
    """Return the band of a curve at each of the steps; None where there is none."""
    return runs.band(curve_name, [step * tokens_a_step for step in steps])


def _distances(curves: Curves, runs: ReferenceRun, tokens_a_step: float) -> Distances:
    """Return for each curve with a band its steps, and the distance from the band's middle.

    The unit is half of the band's width: up to 1 a number lies in the band.
    """
    distances: Distances = {}
    for name, curve in curves.items():
        bands = _bands(runs, name, [step for step, _ in curve], tokens_a_step)
        for (step, value), band in zip(curve, bands, strict=True):
            if band is not None:
                low, high = band
                distance = abs(2 * value - (low + high)) / max(high - low, 1e-12)
                distances.setdefault(name, []).append((step, distance))
    return distances


def _latest(distances: Distances) -> dict[str, float]:
    """Return the last distance of each curve that was read in the second half of the steps."""
    last_step = _last_step(distances)
    latest = {}
    for name, points in distances.items():
        step, distance = points[-1]
        if 2 * step >= last_step:
            latest[name] = distance
    return latest


def _last_step(distances: Distances) -> int:
    return max((points[-1][0] for points in distances.values()), default=0)


def _summary(
    distances: Distances, latest: dict[str, float], outside: Sequence[str], runs: ReferenceRun
) -> str:
    """Say how many numbers are in their bands, at the last step and over all steps."""
    listed = ""
    if outside:
        texts = [
            f"{name} ({latest[name]:.1f} half-widths from the middle)"
            for name in outside[:MOST_OUTSIDE]
        ]
        listed = f"; outside: {', '.join(texts)}"
    is_inside = [distance <= 1 for points in distances.values() for _, distance in points]
    return (
        f"At step {_last_step(distances):,}, {len(latest) - len(outside)} of {len(latest)} "
        f"numbers are within the range of {runs.runs} healthy runs of this size{listed}. Over "
        f"all steps {sum(is_inside)} of {len(is_inside)} are (a healthy run: 95 %)."
    )


def _names_to_draw(distances: Distances, runs: ReferenceRun, outside: Sequence[str]) -> list[str]:
    """Return the curves that are drawn, each once: the loss, the last block, those outside."""
    names = ["loss"]
    names += [f"block.{runs.depth - 1}/{measure}" for measure in LAST_BLOCK_MEASURES]
    names += outside[:MOST_OUTSIDE]
    for name, points in distances.items():
        is_mean_of_blocks = ".*." in name
        if is_mean_of_blocks and name.endswith("stable_rank") and len(points) > 2:
            names.append(name)
    return [name for name in dict.fromkeys(names) if name in distances]


def _curve_over_band(
    curve: list[tuple[int, float]], runs: ReferenceRun, name: str, tokens_a_step: float
) -> go.Figure:
    """Return the figure of a curve over its band."""
    steps = [step for step, _ in curve]
    values = [value for _, value in curve]
    measure = name.rpartition("/")[2].replace("_", " ")
    figure = lines({"this run": (steps, values)}, "step", measure)
    bands = _bands(runs, name, steps, tokens_a_step)
    add_band(figure, list(steps), bands, palette.model_colour(0), "this run", {})
    return figure
