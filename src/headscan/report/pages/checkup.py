"""The page of a checkup: five sentences, the four questions with a figure each, what was looked for, what would help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from headscan.diagnosis.registry import CONDITIONS
from headscan.measures.measure import leading
from headscan.report.kit import (
    Cell,
    Facts,
    Figure,
    Head,
    Line,
    Prose,
    Section,
    Table,
    Term,
    figures,
    page,
    palette,
    section,
)
from headscan.report.kit.words import literal

if TYPE_CHECKING:
    from headscan.diagnosis.result import CheckupResult, Examination, Observation
    from headscan.run import Row

COLUMNS: tuple[Term | str, ...] = (
    "code", Term("condition"), Term("found", "Alarm; notice, where many healthy models have it; no."),
    Term("value", "What the condition rests on."),
    Term("chance", "What random weights of the same architecture give, or guessing without a state.", where="page"),
    Term("threshold", "From here on (at least), or down to here (at most), the condition is named."),
    Term("of", where="page"), Term("site"), Term("reference", where="page"),
)  # fmt: skip


LEAK = "Leak: what of the text is still in the states"


@page("checkup")
def head(result: CheckupResult) -> Head:
    """Names of the sources, the alarms in words, and the five sentences of each source."""
    parts: list[Prose] = []
    several = len(result.examinations) > 1
    for one in result.examinations:
        parts += [Prose(one.model, heading=True)] if several else []
        for sentence in one.summary:
            strong, _, said = sentence.partition(": ")
            parts.append(Prose(said, strong=f"{strong}:") if said else Prose(strong))
    alarm = any(not found.known for found in result.findings)
    return Head([one.model for one in result.examinations], _verdict(result), parts, alarm=alarm)


def _verdict(result: CheckupResult) -> str:
    """The alarms of a source by name, of several sources the first of each; without any, what is known of leaks all the same."""
    said, several = [], len(result.examinations) > 1
    for one in result.examinations:
        alarms = [found for found in result.findings if found.model == one.model and not found.known]
        if alarms:
            names = [f"{found.title.lower()} ({found.code})" for found in alarms]
            if several:
                more = f", and {len(alarms) - 1} more" if len(alarms) > 1 else ""
                said.append(f"{one.model}: {names[0]}{more}.")
            else:
                said.append(
                    f"Alarm: {names[0]}." + _more(alarms[0].code, [found.code for found in alarms[1:]], names[1:])
                )
    healthy = len(result.examinations) - len(said)
    if not said:
        return f"No alarm{' in any of them' * several}. {_leak(result)}"
    return "Alarms. " * several + " ".join(said) + (f" The other{'s' * (healthy > 1)}: no alarm." if healthy else "")


def _more(first: str, codes: Sequence[str], names: Sequence[str]) -> str:
    """The other alarms: those that the first one may have brought about, and those beside it."""
    brings = CONDITIONS[first].brings if first in CONDITIONS else ()
    follow = [name for code, name in zip(codes, names, strict=True) if code in brings]
    also = [name for name in names if name not in follow]
    said = f" May follow from it: {', '.join(follow)}." * bool(follow)
    return said + f" Also: {', '.join(also)}." * bool(also)


def _leak(result: CheckupResult) -> str:
    """Whether states give text away: no alarm, for those of most models do, and not to be taken for safe."""
    seen = {
        one.code: one.present for each in result.examinations for one in each.observations if one.question == "leak"
    }
    seen |= dict.fromkeys((one.code for one in result.findings), True)
    if seen.get("HS301"):
        return "As with most models, states give the prompt away (HS301): the text could be read back from them."
    if seen.get("HS302"):
        return "As with most models, the text shows through noise on the states (HS302)."
    return "" if "HS301" in seen else "Whether the states give their text away was not examined."


@section("checkup", 20)
def shape(result: CheckupResult) -> Section:
    """Average cosine and directions in use over depth."""

    def draw() -> go.Figure:
        figure = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.06)
        figure.update_layout(figures.empty("", "").layout)
        measures = (("average_cosine", "average cosine"), ("participation_ratio", "directions in use"))
        for panel, (measure, title) in enumerate(measures, 1):
            for index, one in enumerate(result.examinations):
                for rows, dash in ((one.evidence.sites, "solid"), (_random(one.evidence.nulls), "dot")):
                    if rows:
                        name = one.model if dash == "solid" else f"{one.model}, random weights"
                        figure.add_scatter(
                            x=[row.text("site") for row in rows], y=[row.number(leading(row, measure)) for row in rows],
                            name=literal(name), mode="lines+markers", showlegend=panel == 1, legendgroup=f"{index}{dash}",
                            line={"color": palette.model_colour(index), "dash": dash}, row=panel, col=1,
                        )  # fmt: skip
            figure.update_yaxes(title_text=title, row=panel, col=1)
        figure.update_yaxes(type="log", row=2, col=1)
        return figure

    lead = "How the tokens lie at each site, sinks left out: how alike in direction, along how many directions they differ."
    caption = "Average cosine, and below it directions in use (participation ratio), site by site."
    alt = "Average cosine and directions in use by site"
    return Section(
        "Shape: how the tokens lie", lead, [Figure("shape", draw, alt, caption, 520), _table(result, "shape")]
    )


@section("checkup", 30)
def cause(result: CheckupResult) -> Section | None:
    """Loss beside counting, which branches build the cone, and the conditions of the cause."""
    shown = [(one.model, one.evidence.loss) for one in result.examinations if one.evidence.loss is not None]
    lead = (
        "Healthy or not, something made that shape: how well the next token is predicted, and which branch adds what to the "
        "average cosine."
    )
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
    return Section("Cause: what made the shape", lead, [*parts, table]) if parts or table.rows else None


@section("checkup", 40)
def leak(result: CheckupResult) -> Section | None:
    """What the states of one block give away: tokens guessed without them, read through noise, read by exact search."""
    shown = [one for one in result.examinations if one.evidence.read or one.evidence.bits]
    table = _table(result, "leak")
    if not shown:
        return Section(LEAK, "What outputs know of other tokens.", [table]) if table.rows else None
    every = [(one.evidence.read, one.evidence.bits) for one in shown]
    values = {
        "guessed without states": [bits.guessed if bits else None for _, bits in every],
        "named through noise": [bits.named if bits else None for _, bits in every],
        "read by exact search": [read.recovered if read else None for read, _ in every],
    }
    noise = next((f"{bits.noise:g}" for _, bits in every if bits), "")
    lead = (
        "Whether the states of one block give their text back, by exact search with a certificate, and what noise leaves of it; "
        "whether tokens know of each other."
    )
    caption = "Tokens named from the states of one block." + (f" Noise: {noise} of the states' rms." if noise else "")
    alt = "Share of tokens that are named without states, through noise, and by exact search"
    figure = _bars("leak", [one.model for one in shown], values, "share of tokens", alt, caption, most=1.0)
    return Section(LEAK, lead, [figure, table])


@section("checkup", 50)
def cure(result: CheckupResult) -> Section | None:
    """The advice of what is present, what a bias takes away, and what remedies gain."""
    gauge = [(one.model, *one.evidence.gauge[1:]) for one in result.examinations if one.evidence.gauge is not None]
    parts: list[Figure | Prose | Table] = []
    if gauge:
        values = {
            "as it is": [before for _, before, _ in gauge],
            "with a bias of the output head": [after for *_, after in gauge],
        }
        alt, said = (
            "Average cosine at the output head's input before and after a bias of the output head",
            "The same logits, with and without a bias.",
        )
        parts.append(
            _bars("cure", [name for name, *_ in gauge], values, "average cosine at the output head's input", alt, said)
        )
    parts += [Prose(one.advice, strong=f"{one.code} {one.title}.") for one in result.findings if one.advice]
    parts += [_remedies(one, several=len(result.examinations) > 1) for one in result.examinations if one.evidence.cure]
    table = _table(result, "cure")
    lead = (
        "What would help, if wanted: with what was found, against what all tokens have in common, and for search; with its "
        "effect on this very model where that was measured."
    )
    return Section("Cure: what would help", lead, [*parts, table]) if parts else None


def _remedies(one: Examination, *, several: bool) -> Table:
    """Whether passages find the one that follows, as they are and after each remedy."""
    cure = one.evidence.cure
    assert cure is not None
    lines = [
        Line(
            row.text("remedy"),
            [
                Cell(row.number(name), interval=row.interval(name))
                for name in ("recall_at_1", "recall_at_1_gain", "recall_at_10", "average_cosine", "hubness")
            ],
        )
        for row in cure.rows
    ]
    percent = Term("found first", "Passages whose follower is nearest of all.", percent=True)
    columns: list[Term | str] = [
        "remedy",
        percent,
        Term("gain", percent=True),
        Term("among ten", percent=True),
        "average cosine",
        "hubness",
    ]
    title = (
        f"{cure.queries} passages of {cure.length} tokens look for the one that follows" + f", {one.model}" * several
    )
    return Table(columns, lines, title=title)


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
    columns: list[Term | str] = ["code", *(Term(one) for one in ("condition", "what it is", "source"))]
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
        "no"
        if not one.present
        else "notice"
        if one.known
        else "alarm"
        if one.sure is not False
        else "alarm, not certain"
    )
    bound = f"at {'least' if one.least else 'most'} {one.threshold:g}" + (
        f", alarm {one.alarm:g}" if one.alarm is not None else ""
    )
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
    title = f"Which branches add to the average cosine of {last}" + (f" in {one.model}" if several else "")
    return Table(["branch", Term("share of the average cosine", percent=True)], lines, title=title)


def _random(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["null"] == "random-init"]
