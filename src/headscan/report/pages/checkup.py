"""The sections of a checkup's page: the shape, every condition, and the other questions.

`checkup_head` has the top of the page with the sheet.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from headscan.measures.measure import leading
from headscan.report.kit import (
    Facts,
    Figure,
    Raw,
    Section,
    Table,
    Term,
    figures,
    palette,
    section,
    table,
)
from headscan.report.kit.parts import Part
from headscan.report.kit.words import literal
from headscan.report.pages.checkup_sheet import SIGNS, SheetRow, rows_of
from headscan.report.pages.scan_layers import Axis
from headscan.run import Row

if TYPE_CHECKING:
    from headscan.diagnosis.result import CheckupResult, Examination, Observation

REMEDY_TERMS = {
    "recall_at_1": Term(
        "found first", "Share of passages whose next passage is nearest.", percent=True
    ),
    "recall_at_1_gain": Term(
        "gain", "Change of that share against the vectors as they are.", percent=True
    ),
    "recall_at_10": Term(
        "among ten",
        "Share of passages whose next passage is among the ten nearest.",
        percent=True,
    ),
    "average_cosine": Term("average cosine", "Over all pairs of passages."),
    "hubness": Term(
        "hubness",
        "Skewness of how often a passage is among the ten nearest of others: high where hubs are.",
    ),
    "remedy": Term("remedy"),
}
BRANCH_TERMS = {
    "part": Term("branch"),
    "share": Term(
        "share of the average cosine",
        "The part of the average cosine that comes with what this branch adds to the states.",
        percent=True,
    ),
}
SHAPE_PANELS = (
    ("average_cosine", "average cosine"),
    ("participation_ratio", "directions in use"),
)
LOSS_FIELDS = {
    "loss": "loss",
    "bigram counts": "counting_loss",
    "frequencies alone": "unigram_entropy",
}
RANDOM = ", random weights"
MOST_BRANCHES = 8
LEAST_BRANCH_SHARE = 0.02


@section("checkup", 10)
def shape(result: CheckupResult) -> Section | None:
    """Return average cosine and directions in use over depth."""
    if max(len(examined.evidence.sites) for examined in result.examinations) < 2:
        figure = Figure("shape", lambda: _shape_of_one_site(result), "Average cosine", height=160)
        return Section("Shape", "The average cosine, with its 95 % interval.", [figure])
    figure = Figure(
        "shape",
        lambda: _shape_by_site(result),
        "Average cosine and directions in use by site",
        "Average cosine between two tokens, and below it directions in use (participation ratio), "
        "from the embedding to the last site; dotted: the same architecture with random weights. "
        "Bars: 95 % intervals.",
        520,
    )
    lead = (
        "The figure shows how alike in direction the tokens of each site are, and along how many "
        "directions they differ. Sinks are left out."
    )
    return Section("Shape: how the tokens lie", lead, [figure])


def _shape_of_one_site(result: CheckupResult) -> go.Figure:
    """Return the average cosine of each source's only site, on an axis from 0 to 1."""
    values = {}
    intervals = []
    for examined in result.examinations:
        row = examined.evidence.sites[0]
        field = leading(row, "average_cosine")
        values[examined.model] = row.number(field)
        intervals.append(row.interval(field))
    figure = figures.dots(values, intervals, "average cosine")
    return figure.update_xaxes(range=[min(0.0, *[v or 0.0 for v in values.values()]) - 0.02, 1.02])


def _shape_by_site(result: CheckupResult) -> go.Figure:
    """Return two panels, one measure each, with a line a model and its random weights."""
    all_rows = []
    for examined in result.examinations:
        all_rows += [Row(row | {"model": examined.model}) for row in examined.evidence.sites]
    axis = Axis(all_rows, result.models)
    figure = figures.stacked(axis.title, [title for _, title in SHAPE_PANELS])
    lines = []
    for index, examined in enumerate(result.examinations):
        lines += _shape_lines(axis, examined, index)
    for panel, (measure, _) in enumerate(SHAPE_PANELS, 1):
        for line in _without_repeats(lines):
            _add_shape_line(figure, line, measure, panel)
    ticks = axis.ticks(all_rows)
    labels = [literal(label) for label in ticks.values()]
    figure.update_xaxes(tickvals=list(ticks), ticktext=labels)
    return figures.set_log(figure, "y2")


@dataclass(frozen=True)
class ShapeLine:
    """The sites of one stack of a model, or of its random weights, with their x; in order."""

    name: str
    group: str
    points: list[tuple[float, Row]]
    index: int
    random: bool


def _shape_lines(axis: Axis, examined: Examination, index: int) -> list[ShapeLine]:
    """Return the lines of the index-th model, then those of its random weights."""
    evidence = examined.evidence
    random_rows = [row for row in evidence.nulls if row["null"] == "random-init"]
    lines = []
    for rows, random in ((evidence.sites, False), (random_rows, True)):
        for stack, points in _points_by_stack(axis, examined.model, rows).items():
            name = f"{examined.model} {stack}" if stack else examined.model
            if random:
                name = f"{name}{RANDOM}"
            group = f"{index}{stack}{'dot' if random else 'solid'}"
            lines.append(ShapeLine(name, group, points, index, random))
    return lines


def _without_repeats(lines: Sequence[ShapeLine]) -> list[ShapeLine]:
    """Return the lines with one for random weights that are equal: those of one architecture."""
    line_by_values: dict[str, ShapeLine] = {}
    for line in lines:
        values = [row.number(measure) for _, row in line.points for measure, _ in SHAPE_PANELS]
        key = str(values) if line.random else line.group
        if key in line_by_values:
            first = line_by_values[key]
            names = [first.name.removesuffix(RANDOM), line.name.removesuffix(RANDOM)]
            line_by_values[key] = replace(first, name=f"{' and '.join(names)}{RANDOM}")
        else:
            line_by_values[key] = line
    return list(line_by_values.values())


def _points_by_stack(
    axis: Axis, model: str, rows: Sequence[Row]
) -> dict[str, list[tuple[float, Row]]]:
    """Map each stack of a model to its sites of the main stream, in order of place.

    The stack is "" unless the model is an encoder-decoder.
    """
    points_by_stack: defaultdict[str, list[tuple[float, Row]]] = defaultdict(list)
    for row in rows:
        place = axis.place(Row(row | {"model": model}))
        if not place.part:
            points_by_stack[place.stack].append((place.x, row))
    for points in points_by_stack.values():
        points.sort(key=lambda point: point[0])
    return points_by_stack


def _add_shape_line(figure: go.Figure, line: ShapeLine, measure: str, panel: int) -> None:
    rows = [row for _, row in line.points]
    values = [row.number(leading(row, measure)) for row in rows]
    intervals = [None if line.random else row.interval(leading(row, measure)) for row in rows]
    dash = "dot" if line.random else "solid"
    figure.add_scatter(
        x=[x for x, _ in line.points],
        y=values,
        text=[row.text("site") for row in rows],
        hovertemplate="%{text}: %{y:.3g}",
        name=literal(line.name),
        mode="lines+markers",
        showlegend=panel == 1,
        legendgroup=line.group,
        error_y=figures.error_bars(values, intervals),
        line={"color": palette.model_colour(line.index), "dash": dash},
        yaxis=f"y{panel}" if panel > 1 else "y",
    )


@dataclass(frozen=True)
class ConditionEntry:
    """A condition as `checkup_conditions.html.j2` shows it.

    `results` has for each model its name ("" where there is one model), a sentence and the advice.
    """

    code: str
    title: str
    state: str
    sign: str
    meaning: str
    results: list[tuple[str, str, str]]
    table: Table
    source: str
    limits: str
    measured: str


@section("checkup", 20)
def conditions(result: CheckupResult) -> Section:
    """Return what each number means, what was found, what to do, and how it was measured."""
    entries = [_condition_entry(result, row) for row in rows_of(result)]
    lead = (
        "Each number of the sheet is explained: what it means, what was found, what to do, how "
        "it was measured. Open one by a click."
    )
    raw = Raw("checkup_conditions.html.j2", {"conditions": entries})
    return Section("Conditions", lead, [raw])


def _condition_entry(result: CheckupResult, row: SheetRow) -> ConditionEntry:
    from headscan.diagnosis.registry import CONDITIONS

    several = len(result.examinations) > 1
    observed = []
    for examined in result.examinations:
        for observation in examined.observations:
            if observation.code == row.code:
                observed.append((examined.model, observation))
    results = []
    for model, observation in observed:
        advice = observation.advice if observation.present else ""
        results.append((model if several else "", observation.sentence, advice))
    urgency = list(SIGNS)
    worst = min((cell.state for cell in row.cells), key=urgency.index)
    condition = CONDITIONS.get(row.code)  # a plug-in that had it may be gone
    first = observed[0][1] if observed else CONDITIONS[row.code]
    for examined in result.examinations:
        for missing in examined.unexamined:
            if missing.code == row.code:
                name = examined.model if several else ""
                sentence = f"Not examined: {missing.reason}."
                option = f"{missing.option} examines it." if missing.option else ""
                results.append((name, sentence, option))
    return ConditionEntry(
        code=row.code,
        title=row.title,
        state=worst,
        sign=SIGNS[worst],
        meaning=first.meaning,
        results=results,
        table=_condition_table(observed),
        source=first.source,
        limits=condition.limits if condition else "",
        measured=condition.sentence if condition else "",
    )


def _condition_table(observed: Sequence[tuple[str, Observation]]) -> Table:
    """Return the numbers of a condition, a row a model."""
    model_of = {id(observation): model for model, observation in observed}
    return table(
        [observation for _, observation in observed],
        (Term("model"), lambda observation: model_of[id(observation)]),
        (Term("level", "Alarm, possible alarm, notice (no fault by itself), or fine."), _level),
        "value",
        "null",
        (
            Term("limit", "The condition is reported from this value on (or down to it)."),
            _threshold,
        ),
        "unit",
        "site",
        "beside",
        where="page",
    )


def _level(observation: Observation) -> str:
    return "possible alarm" if observation.possible else observation.level


def _threshold(observation: Observation) -> str:
    bound = "least" if observation.least else "most"
    text = f"at {bound} {observation.threshold:g}"
    if observation.alarm is not None:
        text += f", alarm {observation.alarm:g}"
    return text


@section("checkup", 30)
def cause(result: CheckupResult) -> Section | None:
    """Return loss beside the tokens' entropy, and which branches build the cone."""
    several = len(result.examinations) > 1
    parts: list[Part] = _losses(result)
    for examined in result.examinations:
        parts += _branches(examined, several=several)
    if not parts:
        return None
    lead = (
        "This section shows how well the next token is predicted, and how much each branch adds "
        "to the average cosine."
    )
    return Section("Cause: what made the shape", lead, parts)


def _losses(result: CheckupResult) -> list[Part]:
    """Return the losses as bars; none where no model predicts a next token."""
    loss_rows = {
        examined.model: examined.evidence.loss
        for examined in result.examinations
        if examined.evidence.loss is not None
    }
    if not loss_rows:
        return []
    values = {}
    for bar, field in LOSS_FIELDS.items():
        values[bar] = [row.number(field) for row in loss_rows.values()]
    draw = partial(figures.bars, list(loss_rows), values, "nats a token")
    return [
        Figure(
            "loss",
            draw,
            "Loss of each model beside the entropy of the text's tokens",
            "Loss, beside what bigram counts and the tokens' frequencies alone reach.",
            _bars_height(loss_rows, values),
        )
    ]


def _bars_height(models: Mapping[str, object] | Sequence[str], values: Mapping[str, object]) -> int:
    """Return the height of a figure with a bar for each model and kind of value."""
    return 100 + 28 * len(models) * len(values)


def _branches(examined: Examination, *, several: bool) -> list[Table]:
    """Return the branches that add most to the cone of the last block, and that take most away."""
    evidence = examined.evidence
    last = evidence.blocks[-1].text("site") if evidence.blocks else ""
    rows = [
        row
        for row in evidence.anatomy
        if row["site"] == last and abs(row.number("share") or 0.0) >= LEAST_BRANCH_SHARE
    ]
    if not rows:
        return []
    rows.sort(key=lambda row: -(row.number("share") or 0.0))
    if len(rows) > MOST_BRANCHES:
        rows = [*rows[:5], *rows[-3:]]
    table_title = f"Which branches add to the average cosine of {last}"
    if several:
        table_title += f" in {examined.model}"
    return [table(rows, "part", "share", terms=BRANCH_TERMS, title=table_title, where="page")]


@section("checkup", 40)
def leak(result: CheckupResult) -> Section | None:
    """Return what the states of a block give away; None where it was not examined.

    Tokens are guessed without the states, read through noise, and read by exact search.
    """
    models = []
    guessed = []
    through_noise = []
    by_search = []
    noises = []
    for examined in result.examinations:
        read = examined.evidence.read
        bits = examined.evidence.bits
        if not read and not bits:
            continue
        models.append(examined.model)
        guessed.append(bits.guessed if bits else None)
        through_noise.append(bits.named if bits else None)
        by_search.append(read.recovered if read else None)
        if bits:
            noises.append(f"{bits.noise:g}")
    if not models:
        return None
    values = {
        "guessed without states": guessed,
        "named through noise": through_noise,
        "read by exact search": by_search,
    }
    caption = "Share of tokens recovered from the states of one block."
    if noises:
        caption += f" Noise: {noises[0]} of the states' rms."
    figure = Figure(
        "leak",
        partial(figures.bars, models, values, "share of tokens", 1.0),
        (
            "Share of tokens guessed without states, recovered through noise, and recovered by "
            "exact search"
        ),
        caption,
        _bars_height(models, values),
    )
    lead = (
        "The figure shows how much of their text the states of one block give back, by exact "
        "search with a certificate, and how much of it remains in noise."
    )
    return Section("Leak: what of the text is still in the states", lead, [figure])


@section("checkup", 50)
def cure(result: CheckupResult) -> Section | None:
    """Return what a bias of the output head takes away, and what remedies gain in search."""
    several = len(result.examinations) > 1
    parts: list[Part] = _biases(result)
    columns = (
        "remedy",
        "recall_at_1",
        "recall_at_1_gain",
        "recall_at_10",
        "average_cosine",
        "hubness",
    )
    for examined in result.examinations:
        tried = examined.evidence.cure
        if tried is None:
            continue
        table_title = (
            f"{tried.queries} passages of {tried.length} tokens search for the passage that follows"
        )
        if several:
            table_title += f", {examined.model}"
        parts.append(
            table(tried.rows, *columns, terms=REMEDY_TERMS, title=table_title, where="page")
        )
    if not parts:
        return None
    lead = (
        "This section shows what helps against the direction that all tokens share, and what helps "
        "in search, as far as it was measured on this model."
    )
    return Section("Remedy: what would help", lead, parts)


def _biases(result: CheckupResult) -> list[Part]:
    """Return the average cosine with and without a bias of the output head, as bars."""
    models = []
    before = []
    after = []
    for examined in result.examinations:
        if examined.evidence.gauge is not None:
            _, cosine, cosine_with_bias = examined.evidence.gauge
            models.append(examined.model)
            before.append(cosine)
            after.append(cosine_with_bias)
    if not models:
        return []
    values = {"as it is": before, "with a bias of the output head": after}
    axis_title = "average cosine at the output head's input"
    return [
        Figure(
            "remedy",
            partial(figures.bars, models, values, axis_title),
            "Average cosine at the output head's input before and after a bias of the output head",
            "The same logits, with and without a bias.",
            _bars_height(models, values),
        )
    ]


@section("checkup", 60)
def not_done(result: CheckupResult) -> Section | None:
    """Return what there was no time for, or what the source does not have."""
    rows = []
    for examined in result.examinations:
        rows += [(examined.model, skipped.sentence) for skipped in examined.evidence.skipped]
    if not rows:
        return None
    lead = "These were left out: the source lacks what they need, or the budget did not allow them."
    return Section("Not examined", lead, [Facts("", rows, where="page")])
