"""The page of a checkup: five sentences, the four questions with a figure each, what was looked for, what would help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from headscan.geometry.explained import leading
from headscan.report.kit import (
    Cell,
    Column,
    Facts,
    Figure,
    Head,
    Line,
    Prose,
    Section,
    Table,
    figures,
    page,
    palette,
    section,
)
from headscan.report.kit.words import literal

if TYPE_CHECKING:
    from headscan.diagnosis.result import CheckupResult, Examination, Observation
    from headscan.run import Row

__all__ = ["cause", "cure", "head", "leak", "looked_for", "not_done", "shape", "summary"]

COLUMNS: tuple[Column | str, ...] = (
    "code", Column("condition", text=True), Column("found", text=True), Column("value", "What the condition rests on."),
    Column("random weights", "The same of the architecture with random weights.", where="page"),
    Column("threshold", "From here on (at least), or down to here (at most), the condition is named.", text=True),
    Column("of", text=True, where="page"), Column("site", text=True), Column("reference", text=True, where="page"),
)  # fmt: skip


@page("checkup")
def head(result: CheckupResult) -> Head:
    """Names of the sources, and how many alarms."""
    alarms = [one for one in result.findings if not one.known]
    known = len(result.findings) - len(alarms)
    said = "No alarm" if not alarms else f"{len(alarms)} alarm{'s' * (len(alarms) > 1)}"
    said += f"; {known} finding{'s' * (known != 1)} that many healthy models have, too."
    return Head([one.model for one in result.examinations], said)


@section("checkup", 10)
def summary(result: CheckupResult) -> Section:
    """The five sentences of each source."""
    parts: list[Prose] = []
    for one in result.examinations:
        parts += [Prose(one.model, heading=True)] if len(result.examinations) > 1 else []
        for sentence in one.summary:
            strong, _, said = sentence.partition(": ")
            parts.append(Prose(said, strong=f"{strong}:") if said else Prose(strong))
    return Section("In five sentences", "The number that is nearest to an alarm, of each question.", parts)


@section("checkup", 20)
def shape(result: CheckupResult) -> Section:
    """Average cosine and directions in use over depth."""

    def draw(measure: str, title: str, *, log: bool = False) -> go.Figure:
        figure = figures.empty("site", title)
        for index, one in enumerate(result.examinations):
            for rows, dash in ((one.evidence.sites, "solid"), (_random(one.evidence.nulls), "dot")):
                if rows:
                    name = one.model if dash == "solid" else f"{one.model}, random weights"
                    figure.add_scatter(
                        x=[row.text("site") for row in rows], y=[row.number(leading(row, measure)) for row in rows],
                        name=literal(name), mode="lines+markers", line={"color": palette.model_colour(index), "dash": dash},
                    )  # fmt: skip
        if log:
            figure.update_yaxes(type="log")
        return figure

    lead = "How the tokens lie at each site, sinks left out: how alike in direction, along how many directions they differ."
    parts = [
        Figure(
            "cosine", lambda: draw("average_cosine", "average cosine"), "Average cosine by site", "Average cosine, site by site."
        ),
        Figure(
            "directions", lambda: draw("participation_ratio", "directions in use", log=True), "Directions in use by site",
            "Directions in use (participation ratio), site by site.",
        ),
    ]  # fmt: skip
    return Section("Shape", lead, [*parts, _table(result, "shape")])


@section("checkup", 30)
def cause(result: CheckupResult) -> Section | None:
    """Loss beside counting, which branches build the cone, and the conditions of the cause."""
    shown = [(one.model, one.evidence.loss) for one in result.examinations if one.evidence.loss is not None]
    lead = "What made that shape: how well the next token is predicted, and which branch adds what to the cone."
    parts: list[Figure | Table] = []
    if shown:
        names, rows = [name for name, _ in shown], [row for _, row in shown]
        values = {
            "loss": [row.number("loss") for row in rows],
            "frequencies alone": [row.number("unigram_entropy") for row in rows],
        }
        said = "Loss, and what knowing the tokens' frequencies loses."
        alt = "Loss of each model beside the entropy of the text's tokens"
        parts.append(_bars("loss", names, values, "nats a token", alt, said))
    parts += [table for one in result.examinations if (table := _branches(one, several=len(result.examinations) > 1))]
    table = _table(result, "cause")
    return Section("Cause", lead, [*parts, table]) if parts or table.rows else None


@section("checkup", 40)
def leak(result: CheckupResult) -> Section | None:
    """What exact search reads from a middle block."""
    shown = [(one.model, one.evidence.read) for one in result.examinations if one.evidence.read is not None]
    if not shown:
        return None

    lead = "Whether the states of one middle block give their text back, by exact search with a certificate."
    values = {"tokens read": [read.recovered for _, read in shown]}
    alt = "Share of tokens that exact search reads from the states"
    figure = _bars(
        "leak", [name for name, _ in shown], values, "share of tokens", alt, "Tokens read, by model.", most=1.0
    )
    return Section("Leak", lead, [figure, _table(result, "leak")])


@section("checkup", 50)
def cure(result: CheckupResult) -> Section | None:
    """The advice of what is present, and what a bias takes away."""
    gauge = [(one.model, *one.evidence.gauge[1:]) for one in result.examinations if one.evidence.gauge is not None]
    parts: list[Figure | Prose] = []
    if gauge:
        values = {
            "as it is": [before for _, before, _ in gauge],
            "with a bias of the head": [after for *_, after in gauge],
        }
        alt, said = (
            "Average cosine at the head's input before and after a bias of the head",
            "The same logits, with and without a bias.",
        )
        parts.append(
            _bars("cure", [name for name, *_ in gauge], values, "average cosine at the head's input", alt, said)
        )
    parts += [Prose(one.advice, strong=f"{one.code} {one.title}.") for one in result.findings if one.advice]
    lead = "What would help, with its effect on this very model where it was measured."
    return Section("Cure", lead, parts) if parts else None


@section("checkup", 60)
def not_done(result: CheckupResult) -> Section | None:
    """What there was no time for, or what the source has not."""
    rows = [(one.model, reason) for one in result.examinations for reason in one.evidence.skipped]
    return (
        Section("Not examined", "What these sources lack, or the budget did not allow.", [Facts("", rows)])
        if rows
        else None
    )


@section("checkup", 70)
def looked_for(result: CheckupResult) -> Section:
    """Every condition, in words."""
    words = {one.code: one for each in result.examinations for one in each.observations}
    rows = [(code, one.title, one.meaning, one.source) for code, one in sorted(words.items())]
    columns: list[Column | str] = [
        "code",
        Column("condition", text=True),
        Column("what it is", text=True),
        Column("source", text=True),
    ]
    return Section("What was looked for", "", [Table(columns, rows, folded=True, title="Conditions", where="page")])


def _bars(
    name: str, models: Sequence[str], values: Mapping[str, Sequence[float | None]], axis: str, alt: str, caption: str,
    *, most: float | None = None,
) -> Figure:  # fmt: skip
    """Horizontal bars, some a model; as high as there are bars."""

    def draw() -> go.Figure:
        figure = figures.empty(axis)
        for index, (label, found) in enumerate(values.items()):
            figure.add_bar(
                y=[literal(model) for model in models], x=list(found), name=label, orientation="h",
                marker_color=palette.model_colour(index), showlegend=len(values) > 1,
            )  # fmt: skip
        figure.update_yaxes(autorange="reversed", showgrid=False)
        figure.update_xaxes(showgrid=True, range=None if most is None else [0, most])
        return figure

    return Figure(name, draw, alt, caption, 100 + 28 * len(models) * len(values))


def _table(result: CheckupResult, question: str) -> Table:
    several = len(result.examinations) > 1
    rows = [
        _line(one, each.model if several else "")
        for each in result.examinations
        for one in each.observations
        if one.question == question
    ]
    return Table(COLUMNS, rows)


def _line(one: Observation, model: str) -> Line:
    found = (
        "no" if not one.present else "yes, as in many" if one.known else "yes, perhaps" if one.sure is False else "yes"
    )
    bound = f"at {'least' if one.least else 'most'} {one.threshold:g}"
    cells = (one.title, found, Cell(one.value, interval=one.interval), one.null, bound, one.unit, one.site, one.beside)
    return Line(one.code, cells, note=model)


def _branches(one: Examination, *, several: bool) -> Table | None:
    """The branches that add most to the cone of the last block, and that take most away."""
    last = one.evidence.blocks[-1].text("site") if one.evidence.blocks else ""
    rows = [row for row in one.evidence.anatomy if row["site"] == last and row.number("share") is not None]
    rows = [row for row in rows if abs(row.number("share") or 0.0) >= 0.02]
    if not rows:
        return None
    ordered = sorted(rows, key=lambda row: -(row.number("share") or 0.0))
    shown: Sequence[Row] = ordered if len(ordered) <= 8 else [*ordered[:5], *ordered[-3:]]
    lines = [Line(row.text("part"), (Cell(row.number("share"), interval=row.interval("share")),)) for row in shown]
    title = f"Who builds the cone of {last}" + (f" in {one.model}" if several else "")
    return Table(["branch", Column("share of the average cosine", percent=True)], lines, title=title)


def _random(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["null"] == "random-init"]
