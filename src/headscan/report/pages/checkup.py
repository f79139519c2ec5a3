"""The page of a checkup: the sheet, one picture, what each finding means and what to do, the
figures of the questions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from headscan.measures.measure import leading
from headscan.report.kit import (
    Facts,
    Figure,
    Head,
    Raw,
    Section,
    Table,
    Term,
    figures,
    page,
    palette,
    section,
    table,
)
from headscan.report.kit.parts import Part
from headscan.report.kit.words import literal, named
from headscan.report.pages.checkup_sheet import SIGNS, rows_of, sheet
from headscan.report.pages.scan_layers import Axis
from headscan.run import Row

if TYPE_CHECKING:
    from headscan.diagnosis.result import CheckupResult, Examination, Observation

LEAK = "Leak: what of the text is still in the states"
RETRIEVAL = {
    "recall_at_1": Term(
        "found first", "Share of passages whose next passage is nearest.", percent=True
    ),
    "recall_at_1_gain": Term("gain", percent=True),
    "recall_at_10": Term("among ten", percent=True),
    "average_cosine": Term("average cosine"),
    "remedy": Term("remedy"),
}
BRANCHES = {"part": Term("branch"), "share": Term("share of the average cosine", percent=True)}


@page("checkup")
def head(result: CheckupResult) -> Head:
    """How many models have an alarm, which and of what, what was read, and the sheet."""
    subtitle = f"{_verdict(result)} {_read(result)}".strip()
    return Head(
        [_title(result)], subtitle, [sheet(result)], alarm=bool(_alarms(result)), listed=False
    )


def _title(result: CheckupResult) -> str:
    """How many models have an alarm; where there is none because too little was read, that."""
    ill = _alarms(result)
    few = _undecided(result)
    count = len(result.examinations)
    first = result.examinations[0]
    if count == 1:
        alarms = len(ill.get(first.model, []))
        if alarms:
            return f"{first.model}: {alarms} alarm{'s' * (alarms > 1)}"
        if few:
            return (
                f"{first.model}: too few {first.evidence.unit} to raise an alarm; "
                f"{_beyond(result, first)}"
            )
        return f"{first.model}: no alarm"
    if ill:
        return f"{len(ill)} of {count} models need{'s' * (len(ill) == 1)} attention"
    if len(few) == count:
        return f"Too few {first.evidence.unit} to raise an alarm in any of {count} models"
    if few:
        return (
            f"No alarm in {count - len(few)} of {count} models; too few {few[0].evidence.unit} "
            "for one in the rest"
        )
    return f"No alarm in {count} models"


def _undecided(result: CheckupResult) -> list[Examination]:
    """The examinations without an alarm of which too little was read to raise one."""
    ill = _alarms(result)
    return [one for one in result.examinations if one.too_few and one.model not in ill]


def _possible(result: CheckupResult, examined: Examination) -> list[Observation]:
    """What would be an alarm of this model, had more been read, and counts."""
    return [
        one
        for one in result.findings
        if one.model == examined.model and one.possible and not one.passed
    ]


def _beyond(result: CheckupResult, examined: Examination) -> str:
    from headscan.diagnosis.result import beyond_limit

    return beyond_limit(_possible(result, examined))


def _shortage(result: CheckupResult, examined: Examination) -> str:
    """The sentence on one model of which too little was read: how much, and which numbers lie
    beyond their limit.
    """
    names = [f"{one.title.lower()} ({one.code})" for one in _possible(result, examined)]
    which = f"; beyond the limit: {' and '.join(names)}" if names else ""
    return f"{examined.shortage}{which}."


def _alarms(result: CheckupResult) -> dict[str, list[Observation]]:
    """The alarms that count, by model."""
    found: dict[str, list[Observation]] = {}
    for one in result.findings:
        if not one.known and not one.passed:
            found.setdefault(one.model or "", []).append(one)
    return found


def _verdict(result: CheckupResult) -> str:
    """The alarms of each source by name; without any, what is known of leaks all the same."""
    several = len(result.examinations) > 1
    ill = _alarms(result)
    said = []
    for model, found in ill.items():
        *more, last = (one.title.lower() for one in found)
        said.append(
            (f"{model}: " if several else "")
            + " and ".join([", ".join(more), last] if more else [last])
        )
    few = _undecided(result)
    short = " ".join((f"{one.model}: " if several else "") + _shortage(result, one) for one in few)
    healthy = len(result.examinations) - len(said) - len(few)
    if not said and few:
        rest = f"The other{'s' * (healthy > 1)}: no alarm." if healthy else ""
        return " ".join(filter(None, [short, rest, _leak(result)]))
    if not said:
        return f"None of the alarms is raised{' in any of them' * several}. {_leak(result)}".strip()
    named = "; ".join(said)
    rest = f" The other{'s' * (healthy > 1)}: no alarm." if healthy else ""
    named = f"{named[:1].upper() if not several else named[:1]}{named[1:]}."
    alone = [one.shortage for one in result.examinations if one.too_few and not several]
    short = f"{alone[0]}: no other alarm on the text could be raised." if alone else short
    return f"{named} {short}".strip() + rest


def _read(result: CheckupResult) -> str:
    """The text and its tokens, and beside how many reference models."""
    # all verbs come with it: no other page waits for them
    from headscan.diagnosis.result import population

    text = result.protocol.text
    settings = result.protocol.settings
    healthy = sum(one.kind == "healthy" for one in population())
    beside = (
        f"beside {healthy} healthy reference models"
        + f" (population {result.population})" * bool(result.population)
    )
    if text is None or not text.tokens:
        return f"Read {beside}."
    context = text.context or settings.get("context")
    alone = " each text by itself" if text.alone else f" in windows of {context}" if context else ""
    return f"{text.tokens:,} tokens of {named(str(text.source))}{alone}, {beside}."


def _leak(result: CheckupResult) -> str:
    """Whether states give text away: no alarm, for those of most models do, and not to be taken for
    safe.
    """
    leaks = [
        one for each in result.examinations for one in each.observations if one.question == "leak"
    ]
    seen = {one.code: one.present for one in leaks} | dict.fromkeys(
        (one.code for one in result.findings), True
    )
    if seen.get("HS301"):
        return (
            "As with most models, states give the prompt away (HS301): the text could be read "
            "back from them."
        )
    if seen.get("HS302"):
        return "As with most models, the text shows through noise on the states (HS302)."
    return "" if "HS301" in seen else "Whether the states give their text away was not examined."


@section("checkup", 10)
def shape(result: CheckupResult) -> Section:
    """Average cosine and directions in use over depth."""

    def draw() -> go.Figure:
        figure = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.06)
        figure.update_layout(figures.empty("", "").layout)
        every = [
            Row(row | {"model": one.model})
            for one in result.examinations
            for row in one.evidence.sites
        ]
        axis = Axis(every, result.models)
        measures = (
            ("average_cosine", "average cosine"),
            ("participation_ratio", "directions in use"),
        )
        for panel, (measure, title) in enumerate(measures, 1):
            for index, one in enumerate(result.examinations):
                random = [row for row in one.evidence.nulls if row["null"] == "random-init"]
                for rows, dash in ((one.evidence.sites, "solid"), (random, "dot")):
                    for stack, line in _lines(axis, one.model, rows).items():
                        name = " ".join(word for word in (one.model, stack) if word)
                        name = name if dash == "solid" else f"{name}, random weights"
                        values = [row.number(leading(row, measure)) for _, row in line]
                        ends = [
                            row.interval(leading(row, measure)) if dash == "solid" else None
                            for _, row in line
                        ]
                        figure.add_scatter(
                            x=[x for x, _ in line],
                            y=values,
                            text=[row.text("site") for _, row in line],
                            hovertemplate="%{text}: %{y:.3g}",
                            name=literal(name),
                            mode="lines+markers",
                            showlegend=panel == 1,
                            legendgroup=f"{index}{stack}{dash}",
                            error_y=figures.reach(values, ends),
                            line={"color": palette.model_colour(index), "dash": dash},
                            row=panel,
                            col=1,
                        )
            figure.update_yaxes(title_text=title, row=panel, col=1)
        ticks = axis.ticks(every)
        figure.update_xaxes(tickvals=list(ticks), ticktext=list(ticks.values())).update_xaxes(
            title_text=axis.title, row=2, col=1
        )
        figure.update_yaxes(type="log", dtick=1, row=2, col=1)
        look = {"title_font_size": 12, "color": palette.ROLES["muted"][0], "fixedrange": True}
        return figure.update_xaxes(**look).update_yaxes(
            **look, gridcolor=palette.ROLES["hairline"][0]
        )

    lead = (
        "How the tokens lie at each site, sinks left out: how alike in direction, along how many "
        "directions they differ."
    )
    caption = (
        "Average cosine between two tokens, and below it directions in use (participation ratio), "
        "from the embedding to "
    )
    caption += (
        "the last site; dotted: the same architecture with random weights. Bars: 95 % intervals."
    )
    drawn = Figure("shape", draw, "Average cosine and directions in use by site", caption, 520)
    return Section("Shape: how the tokens lie", lead, [drawn])


def _lines(axis: Axis, model: str, rows: Sequence[Row]) -> dict[str, list[tuple[float, Row]]]:
    """Map each stack of a model ("" unless it is an encoder-decoder) to its sites of the main
    stream, in order of place.
    """
    lines: dict[str, list[tuple[float, Row]]] = {}
    for row in rows:
        place = axis.place(Row(row | {"model": model}))
        if not place.part:
            lines.setdefault(place.stack, []).append((place.x, row))
    for line in lines.values():
        line.sort(key=lambda pair: pair[0])
    return lines


@section("checkup", 20)
def conditions(result: CheckupResult) -> Section:
    """What each number means, what was found, what to do, and how it was measured; folded."""
    from headscan.diagnosis.registry import CONDITIONS

    several = len(result.examinations) > 1
    shown = []
    for row in rows_of(result):
        every = [
            (each.model, one)
            for each in result.examinations
            for one in each.observations
            if one.code == row.code
        ]
        states = {cell.model: cell.state for cell in row.cells}
        worst = min(states.values(), key=list(SIGNS).index)
        found = [
            (model if several else "", one.sentence, one.advice if one.present else "")
            for model, one in every
        ]
        known = CONDITIONS.get(row.code)  # a plug-in that had it may be gone
        shown.append(
            {
                "code": row.code,
                "title": row.title,
                "state": worst,
                "sign": SIGNS[worst],
                "meaning": every[0][1].meaning,
                "found": found,
                "table": _table(every),
                "source": every[0][1].source,
                "limits": known.limits if known else "",
                "measured": known.sentence if known else "",
            }
        )
    lead = (
        "Every number of the sheet: what it means, what was found, what to do, how it was "
        "measured. Open one by a click."
    )
    return Section(
        "What was looked for", lead, [Raw("checkup_conditions.html.j2", {"conditions": shown})]
    )


@section("checkup", 30)
def cause(result: CheckupResult) -> Section | None:
    """Loss beside counting, which branches build the cone, and the conditions of the cause."""
    losses = {
        one.model: one.evidence.loss for one in result.examinations if one.evidence.loss is not None
    }
    parts: list[Part] = []
    if losses:
        names = {"loss": "loss", "unigram_entropy": "frequencies alone"}
        values = {
            title: [row.number(name) for row in losses.values()] for name, title in names.items()
        }
        alt = "Loss of each model beside the entropy of the text's tokens"
        caption = "Loss, and what knowing the tokens' frequencies loses."
        parts.append(_bars("loss", list(losses), values, "nats a token", alt, caption))
    parts += [
        one
        for each in result.examinations
        if (one := _branches(each, several=len(result.examinations) > 1))
    ]
    lead = (
        "How well the next token is predicted, and how much each branch adds to the average cosine."
    )
    return Section("Cause: what made the shape", lead, parts) if parts else None


@section("checkup", 40)
def leak(result: CheckupResult) -> Section | None:
    """What the states of one block give away: tokens guessed without them, read through noise, read
    by exact search.
    """
    shown = [one for one in result.examinations if one.evidence.read or one.evidence.bits]
    if not shown:
        return None
    every = [(one.evidence.read, one.evidence.bits) for one in shown]
    values = {
        "guessed without states": [bits.guessed if bits else None for _, bits in every],
        "named through noise": [bits.named if bits else None for _, bits in every],
        "read by exact search": [read.recovered if read else None for read, _ in every],
    }
    noise = next((f"{bits.noise:g}" for _, bits in every if bits), "")
    lead = (
        "Whether the states of one block give their text back, by exact search with a "
        "certificate, and what noise leaves of "
    )
    lead += "it; whether tokens know of each other."
    caption = "Tokens named from the states of one block." + (
        f" Noise: {noise} of the states' rms." if noise else ""
    )
    alt = "Share of tokens that are named without states, through noise, and by exact search"
    figure = _bars(
        "leak", [one.model for one in shown], values, "share of tokens", alt, caption, most=1.0
    )
    return Section(LEAK, lead, [figure])


@section("checkup", 50)
def cure(result: CheckupResult) -> Section | None:
    """The advice of what is present, what a bias takes away, and what remedies gain."""
    gauges = {
        one.model: one.evidence.gauge
        for one in result.examinations
        if one.evidence.gauge is not None
    }
    parts: list[Part] = []
    if gauges:
        _, before, after = map(list, zip(*gauges.values(), strict=True))
        values = {"as it is": before, "with a bias of the output head": after}
        axis = "average cosine at the output head's input"
        alt = "Average cosine at the output head's input before and after a bias of the output head"
        parts.append(
            _bars(
                "cure", list(gauges), values, axis, alt, "The same logits, with and without a bias."
            )
        )
    for one in result.examinations:
        if (tried := one.evidence.cure) is not None:
            title = (
                f"{tried.queries} passages of {tried.length} tokens search for the passage that "
                "follows"
            )
            title += f", {one.model}" * (len(result.examinations) > 1)
            columns = (
                "remedy",
                "recall_at_1",
                "recall_at_1_gain",
                "recall_at_10",
                "average_cosine",
                "hubness",
            )
            parts.append(table(tried.rows, *columns, terms=RETRIEVAL, title=title, where="page"))
    lead = (
        "What would help against what all tokens have in common, and for search, as far as it was "
        "measured on this model."
    )
    return Section("Cure: what would help", lead, parts) if parts else None


@section("checkup", 60)
def not_done(result: CheckupResult) -> Section | None:
    """What there was no time for, or what the source has not."""
    rows = [(one.model, reason) for one in result.examinations for reason in one.evidence.skipped]
    lead = "What these sources lack, or the budget did not allow."
    return Section("Not examined", lead, [Facts("", rows, where="page")]) if rows else None


def _bars(
    name: str,
    models: Sequence[str],
    values: Mapping[str, Sequence[float | None]],
    axis: str,
    alt: str,
    caption: str,
    *,
    most: float | None = None,
) -> Figure:
    """Horizontal bars, some a model; as high as there are bars."""
    return Figure(
        name,
        lambda: figures.bars(models, values, axis, most),
        alt,
        caption,
        100 + 28 * len(models) * len(values),
    )


def _found(one: Observation) -> str:
    if not one.present:
        return "no"
    if one.possible:
        return "too few tokens for an alarm"
    return "notice" if one.known else "alarm" if one.sure is not False else "alarm, not certain"


def _threshold(one: Observation) -> str:
    alarm = f", alarm {one.alarm:g}" if one.alarm is not None else ""
    return f"at {'least' if one.least else 'most'} {one.threshold:g}{alarm}"


def _table(every: Sequence[tuple[str, Observation]]) -> Table:
    """One condition, a row a model."""
    owner = {id(one): model for model, one in every}
    return table(
        [one for _, one in every],
        (Term("model"), lambda one: owner[id(one)]),
        (Term("found", "Alarm; notice, where it is no fault by itself; no."), _found),
        "value",
        "null",
        (
            Term("limit", "The condition is reported from this value on (or down to it)."),
            _threshold,
        ),
        "unit",
        "site",
        "beside",
        "percentile",
        where="page",
    )


def _branches(one: Examination, *, several: bool) -> Table | None:
    """The branches that add most to the cone of the last block, and that take most away."""
    last = one.evidence.blocks[-1].text("site") if one.evidence.blocks else ""
    rows = [
        row
        for row in one.evidence.anatomy
        if row["site"] == last and abs(row.number("share") or 0.0) >= 0.02
    ]
    if not rows:
        return None
    rows.sort(key=lambda row: -(row.number("share") or 0.0))
    shown: Sequence[Row] = rows if len(rows) <= 8 else [*rows[:5], *rows[-3:]]
    title = f"Which branches add to the average cosine of {last}" + (
        f" in {one.model}" if several else ""
    )
    return table(shown, "part", "share", terms=BRANCHES, title=title, where="page")
