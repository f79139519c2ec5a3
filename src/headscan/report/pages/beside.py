"""A run's own curves beside the bands of healthy runs: on the page of a training run, and of a series of checkpoints."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from headscan.report.kit import Figure, Panels, Prose, Section, palette, section
from headscan.report.kit.figures import lines
from headscan.report.kit.parts import Part
from headscan.report.pages.scan_layers import add_band, of_model
from headscan.report.pages.scan_shape import checkpoints
from headscan.run import Row
from headscan.training.objective import GeometrySnapshot
from headscan.training.reference import Curves, ReferenceRuns, curves_of, runs_like

if TYPE_CHECKING:
    from headscan.scanner.result import ScanResult
    from headscan.training.result import TrainResult

SHOWN = ("average_cosine", "effective_rank", "top_direction_share", "mean_norm", "entropy", "max", "attention_ratio", "mlp_ratio")
TITLE = "Beside healthy runs"
OF_ANY_TEXT = ("site", "average_cosine", "top_direction_share", "mean_norm")  # a longer text moves ranks
STEP = re.compile(r"(?:^|[-_@/])(?:checkpoint|step|global_step)[-_]?(\d+)$")


@section("train", 32)
def run_beside(result: TrainResult) -> Section | None:
    """A run beside healthy runs of its size."""
    a_step, curves = result.tokens / max(1, result.steps), curves_of(result.scan, result.readings, result.curve)
    like = runs_like(result.models[0], a_step, result.recipe.steps, result.objective.name)
    return _beside(curves, like, a_step) if result.scan else None


@section("scan", 46)
def series_beside(result: ScanResult) -> Section | None:
    """A series of checkpoints, whose names say their steps, beside healthy runs."""
    steps = {name: int(found[1]) for name in checkpoints(result) if (found := STEP.search(name))}
    rows = [(step, row) for name, step in steps.items() for row in of_model(result.sites, name)]
    some = [GeometrySnapshot(step=step, sites=[Row({key: row.get(key) for key in OF_ANY_TEXT})]) for step, row in rows]
    note = " Ranks are left out, for they grow with the text; steps are counted as theirs, whatever number of tokens yours had."
    return _beside(curves_of(some), runs_like(result.models[-1]), None, note) if len(steps) > 2 else None


def _beside(curves: Curves, known: ReferenceRuns | str, tokens: float | None, note: str = "") -> Section:
    """Which numbers lie in the bands, at the last step and over all, and the curves over their bands."""
    if isinstance(known, str):
        return Section(TITLE, parts=[Prose(f"It cannot be held against healthy runs, no band is drawn: {known}.")])
    a_step, away = tokens or known.tokens_a_step, dict[str, list[tuple[int, float]]]()  # from the middle, in half-widths
    for name, curve in curves.items():
        pairs = zip(curve, known.band(name, [step * a_step for step, _ in curve]), strict=True)
        if off := [(step, abs(2 * v - sum(band)) / max(band[1] - band[0], 1e-12)) for (step, v), band in pairs if band]:
            away[name] = off
    every = [off <= 1 for each in away.values() for _, off in each]
    last = max((each[-1][0] for each in away.values()), default=0)
    now = {name: off[-1][1] for name, off in away.items() if 2 * off[-1][0] >= last}  # what was read in the second half
    out = sorted((name for name in now if now[name] > 1), key=lambda name: -now[name])
    words = ", ".join(f"{name} ({now[name]:.1f} half-widths from the middle)" for name in out[:3])
    said = f"At step {last:,} {len(now) - len(out)} of {len(now)} numbers are within what {known.runs} healthy runs of this size "
    said += f"show{f'; outside: {words}' * bool(out)}. Over all steps {sum(every)} of {len(every)} are (a healthy run: 95 %)."
    shown = ["loss", *(f"block.{known.depth - 1}/{what}" for what in SHOWN), *out[:3]]
    shown += [name for name in away if ".*." in name and name.endswith("stable_rank") and len(away[name]) > 2]
    panels = [
        Figure(f"beside-{k}", partial(_drawn, curves[name], known, name, a_step), name, height=210, title=name.replace("/", " "))
        for k, name in enumerate(name for name in dict.fromkeys(shown) if name in away)
    ]  # fmt: skip
    parts: list[Part] = [Prose(said), Prose(f"{known.about}.{note}", where="page"), Panels(panels, "Bands: theirs.", small=True)]
    return Section(TITLE, "Is a number usual at this step? A band should hold 95 % of further runs (*: mean of blocks).", parts)


def _drawn(curve: list[tuple[int, float]], known: ReferenceRuns, name: str, a_step: float) -> go.Figure:
    """One curve over its band."""
    steps, values = zip(*curve, strict=True)
    figure = lines({"this run": (steps, values)}, "step", name.rpartition("/")[2].replace("_", " "))
    add_band(figure, [*steps], known.band(name, [step * a_step for step in steps]), palette.model_colour(0), "this run", {})
    return figure
