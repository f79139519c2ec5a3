"""The page of a checkup: five sentences, the four questions with a figure each, what was looked for, what would help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from headscan.measures.measure import leading
from headscan.report.kit import Facts, Figure, Head, Prose, Section, Table, Term, figures, page, palette, section, table
from headscan.report.kit.parts import Part
from headscan.report.kit.words import literal

if TYPE_CHECKING:
    from headscan.diagnosis.result import CheckupResult, Examination, Observation
    from headscan.run import Row

LEAK = "Leak: what of the text is still in the states"
RETRIEVAL = {
    "recall_at_1": Term("found first", "Passages whose follower is nearest of all.", percent=True),
    "recall_at_1_gain": Term("gain", percent=True), "recall_at_10": Term("among ten", percent=True),
    "average_cosine": Term("average cosine"), "remedy": Term("remedy"),
}  # fmt: skip
BRANCHES = {"part": Term("branch"), "share": Term("share of the average cosine", percent=True)}


@page("checkup")
def head(result: CheckupResult) -> Head:
    """Names of the sources, the alarms in words, and the five sentences of each source."""
    parts: list[Prose] = []
    for one in result.examinations:
        parts += [Prose(one.model, heading=True)] if len(result.examinations) > 1 else []
        for sentence in one.summary:
            strong, _, rest = sentence.partition(": ")
            parts.append(Prose(rest, strong=f"{strong}:") if rest else Prose(strong))
    alarm = any(not one.known for one in result.findings)
    return Head([one.model for one in result.examinations], _verdict(result), parts, alarm=alarm)


def _verdict(result: CheckupResult) -> str:
    """The alarms of each source by name; without any, what is known of leaks all the same."""
    said, several = [], len(result.examinations) > 1
    for each in result.examinations:
        names = [f"{one.title.lower()} ({one.code})" for one in result.findings if one.model == each.model and not one.known]
        if names:
            said.append(f"{each.model if several else 'Alarm'}: {', '.join(names)}.")
    if not said:
        return f"No alarm{' in any of them' * several}. {_leak(result)}"
    healthy = len(result.examinations) - len(said)
    return "Alarms. " * several + " ".join(said) + (f" The other{'s' * (healthy > 1)}: no alarm." if healthy else "")


def _leak(result: CheckupResult) -> str:
    """Whether states give text away: no alarm, for those of most models do, and not to be taken for safe."""
    leaks = [one for each in result.examinations for one in each.observations if one.question == "leak"]
    seen = {one.code: one.present for one in leaks} | dict.fromkeys((one.code for one in result.findings), True)
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
                random = [row for row in one.evidence.nulls if row["null"] == "random-init"]
                for rows, dash in ((one.evidence.sites, "solid"), (random, "dot")):
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
    drawn = Figure("shape", draw, "Average cosine and directions in use by site", caption, 520)
    return Section("Shape: how the tokens lie", lead, [drawn, _table(result, "shape")])


@section("checkup", 30)
def cause(result: CheckupResult) -> Section | None:
    """Loss beside counting, which branches build the cone, and the conditions of the cause."""
    losses = {one.model: one.evidence.loss for one in result.examinations if one.evidence.loss is not None}
    parts: list[Part] = []
    if losses:
        names = {"loss": "loss", "unigram_entropy": "frequencies alone"}
        values = {title: [row.number(name) for row in losses.values()] for name, title in names.items()}
        alt = "Loss of each model beside the entropy of the text's tokens"
        caption = "Loss, and what knowing the tokens' frequencies loses."
        parts.append(_bars("loss", list(losses), values, "nats a token", alt, caption))
    parts += [one for each in result.examinations if (one := _branches(each, several=len(result.examinations) > 1))]
    conditions = _table(result, "cause")
    lead = "How well the next token is predicted, and how much each branch adds to the average cosine."
    return Section("Cause: what made the shape", lead, [*parts, conditions]) if parts or conditions.rows else None


@section("checkup", 40)
def leak(result: CheckupResult) -> Section | None:
    """What the states of one block give away: tokens guessed without them, read through noise, read by exact search."""
    shown = [one for one in result.examinations if one.evidence.read or one.evidence.bits]
    conditions = _table(result, "leak")
    if not shown:
        return Section(LEAK, "What outputs know of other tokens.", [conditions]) if conditions.rows else None
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
    return Section(LEAK, lead, [figure, conditions])


@section("checkup", 50)
def cure(result: CheckupResult) -> Section | None:
    """The advice of what is present, what a bias takes away, and what remedies gain."""
    gauges = {one.model: one.evidence.gauge for one in result.examinations if one.evidence.gauge is not None}
    parts: list[Part] = []
    if gauges:
        values = {
            "as it is": [before for _, before, _ in gauges.values()],
            "with a bias of the output head": [after for *_, after in gauges.values()],
        }
        axis = "average cosine at the output head's input"
        alt = "Average cosine at the output head's input before and after a bias of the output head"
        parts.append(_bars("cure", list(gauges), values, axis, alt, "The same logits, with and without a bias."))
    parts += [Prose(one.advice, strong=f"{one.code} {one.title}.") for one in result.findings if one.advice]
    for one in result.examinations:
        if (tried := one.evidence.cure) is not None:
            title = f"{tried.queries} passages of {tried.length} tokens look for the one that follows"
            title += f", {one.model}" * (len(result.examinations) > 1)
            columns = ("remedy", "recall_at_1", "recall_at_1_gain", "recall_at_10", "average_cosine", "hubness")
            parts.append(table(tried.rows, *columns, terms=RETRIEVAL, title=title))
    lead = (
        "What would help, if wanted: with what was found, against what all tokens have in common, and for search; with its "
        "effect on this very model where that was measured."
    )
    return Section("Cure: what would help", lead, [*parts, _table(result, "cure")]) if parts else None


@section("checkup", 60)
def not_done(result: CheckupResult) -> Section | None:
    """What there was no time for, or what the source has not."""
    rows = [(one.model, reason) for one in result.examinations for reason in one.evidence.skipped]
    lead = "What these sources lack, or the budget did not allow."
    return Section("Not examined", lead, [Facts("", rows)]) if rows else None


@section("checkup", 70)
def looked_for(result: CheckupResult) -> Section:
    """Every condition, in words."""
    words = {one.code: one for each in result.examinations for one in each.observations}
    rows = [words[code] for code in sorted(words)]
    columns = (Term("condition"), lambda one: one.title), (Term("what it is"), lambda one: one.meaning)
    shown = table(rows, "code", *columns, "source", folded=True, title="Conditions", where="page")
    return Section("What was looked for", "", [shown])


def _bars(
    name: str, models: Sequence[str], values: Mapping[str, Sequence[float | None]], axis: str, alt: str, caption: str,
    *, most: float | None = None,
) -> Figure:  # fmt: skip
    """Horizontal bars, some a model; as high as there are bars."""
    height = 100 + 28 * len(models) * len(values)
    return Figure(name, lambda: figures.bars(models, values, axis, most), alt, caption, height)


def _found(one: Observation) -> str:
    if not one.present:
        return "no"
    return "notice" if one.known else "alarm" if one.sure is not False else "alarm, not certain"


def _threshold(one: Observation) -> str:
    alarm = f", alarm {one.alarm:g}" if one.alarm is not None else ""
    return f"at {'least' if one.least else 'most'} {one.threshold:g}{alarm}"


def _table(result: CheckupResult, question: str) -> Table:
    """The conditions of a question."""
    rows = [one for each in result.examinations for one in each.observations if one.question == question]
    owner = {id(one): each.model for each in result.examinations for one in each.observations}
    several = len(result.examinations) > 1
    return table(
        rows, "code", (Term("condition"), lambda one: one.title),
        (Term("found", "Alarm; notice, where many healthy models have it; no."), _found),
        "value", "null", (Term("threshold", "From here on, or down to here, the condition is named."), _threshold),
        "unit", "site", "beside", note=lambda one: owner[id(one)] if several else "",
    )  # fmt: skip


def _branches(one: Examination, *, several: bool) -> Table | None:
    """The branches that add most to the cone of the last block, and that take most away."""
    last = one.evidence.blocks[-1].text("site") if one.evidence.blocks else ""
    rows = [row for row in one.evidence.anatomy if row["site"] == last and abs(row.number("share") or 0.0) >= 0.02]
    if not rows:
        return None
    rows.sort(key=lambda row: -(row.number("share") or 0.0))
    shown: Sequence[Row] = rows if len(rows) <= 8 else [*rows[:5], *rows[-3:]]
    title = f"Which branches add to the average cosine of {last}" + (f" in {one.model}" if several else "")
    return table(shown, "part", "share", terms=BRANCHES, title=title)
