"""The page of the ledger: statements of the literature, their numbers by model, and figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from headscan.report.kit import (
    Figure,
    Head,
    Prose,
    Section,
    Table,
    Term,
    page,
    palette,
    section,
)
from headscan.report.kit.figures import empty, set_log
from headscan.report.kit.words import number
from headscan.run.errors import BadInput

if TYPE_CHECKING:
    from headscan.run import Interval
    from headscan_lab.ledger.figures import RedrawnFigure
    from headscan_lab.ledger.run import ClaimRecord, ReproduceResult

SIGNS = {
    "supported": "●",
    "not supported here": "○",
    "refuted": "✕",
    "misprint": "✎",
    "undecided": "◌",
    "not tested": "↗",
}
"""The sign of each verdict, so that none is told by colour or words alone."""

MEANINGS = {
    "supported": "Every value of the free choice lies, with its interval, within the values that "
    "count.",
    "not supported here": "Every value lies outside, on the models that were run.",
    "refuted": "A formula, which depends on neither scale nor training, does not hold.",
    "misprint": "A formula is not true as it is printed; the corrected one stands beside it.",
    "undecided": "An interval crosses a bound, or the free choice or the model decides.",
    "not tested": "No model here suits, or the planted case did not come out as it has to.",
}
NOTES = {
    "another cause": "A control shows another cause than the one that is said.",
    "optimiser": "A descent fails where a search finds the information.",
    "not peculiar": "Something else does the same.",
    "mechanism": "A control shows by which mechanism it comes about.",
}
OPEN = ("undecided", "not tested")


@page("reproduce")
def head(result: ReproduceResult) -> Head:
    """Return how many statements there are, and what the verdicts mean."""
    if not result.claims and not result.figures:
        raise BadInput("The result is no ledger: it has no statements.")
    if not result.claims:
        figures = len(result.figures)
        return Head(["Figures"], f"{figures} figures of a document, redrawn from runs of our own.")
    used = {record.verdict for record in result.claims}
    used_notes = {finding.note for record in result.claims for finding in record.findings}
    words = [Term(name, meaning) for name, meaning in MEANINGS.items() if name in used]
    words += [Term(name, meaning) for name, meaning in NOTES.items() if name in used_notes]
    return Head(["The ledger"], summary(result.claims), glossary=words)


def summary(records: Sequence[ClaimRecord]) -> str:
    """Return how many statements have which verdict, and on how many models."""
    counts: Counter[str] = Counter(record.verdict for record in records)
    parts = ", ".join(f"{counts[verdict]} {verdict}" for verdict in SIGNS if counts[verdict])
    plural = "" if len(records) == 1 else "s"
    decided = [record for record in records if record.verdict not in OPEN]
    on_two = sum(models_counted(record) > 1 for record in decided)
    return (
        f"{len(records)} statement{plural} of the literature, each under a stated protocol: "
        f"{parts}. Of {len(decided)} that are decided, {on_two} are decided on two "
        "models or more that were run and have tokenizers of their own."
    )


def models_counted(record: ClaimRecord) -> int:
    """Return how many models were run: those that share a tokenizer count as one."""
    return len({finding.tokenizer for finding in record.findings if finding.values} - {""})


def with_interval(value: float | None, interval: Interval | None) -> str:
    """Return a number with its interval, where it has one that is open.

    >>> with_interval(0.5, (0.4, 0.6))
    '0.500 [0.400, 0.600]'
    """
    if value is None:
        return ""
    if interval is None or interval[0] == interval[1]:
        return number(value)
    return f"{number(value)} [{number(interval[0])}, {number(interval[1])}]"


@section("reproduce", 10)
def statements(result: ReproduceResult) -> Section | None:
    """Show a row a statement: verdict, statement, control, range of the free choice."""
    if not result.claims:
        return None
    columns = [
        Term("id"),
        Term("verdict"),
        Term("statement"),
        Term("counts"),
        Term("models"),
        Term("control", where="page"),
        Term("turned by", where="page"),
        Term("range", where="page"),
        Term("place", where="page"),
    ]
    rows = []
    for record in result.claims:
        models = [f"{finding.model}: {finding.verdict}" for finding in record.findings]
        rows.append(
            (
                record.id,
                f"{SIGNS[record.verdict]} {record.verdict}",
                record.statement,
                str(record.counts),
                "; ".join(models),
                record.control,
                record.turned_by,
                record.range,
                record.place,
            )
        )
    return Section("Statements", "A row a statement.", [Table(columns, rows)])


@section("reproduce", 20)
def numbers(result: ReproduceResult) -> Section | None:
    """Show every number by statement and model, and the planted cases."""
    if not result.claims:
        return None
    columns = [
        Term("id"),
        Term("model"),
        Term("side"),
        Term("number"),
        Term("value"),
        Term("sample", where="page"),
    ]
    rows: list[tuple[str, ...]] = []
    for record in result.claims:
        for evidence in record.evidence:
            counts = {"tokens": evidence.tokens, "prompts": evidence.prompts}
            sample = ", ".join(f"{count:,} {unit}" for unit, count in counts.items() if count)
            value = with_interval(evidence.value, evidence.interval)
            rows.append((record.id, evidence.model, evidence.side, evidence.name, value, sample))
        planted = with_interval(record.planted.value, record.planted.interval)
        rows.append((record.id, "planted case", "", record.planted.name, planted, ""))
    parts: list[Prose | Table] = [Table(columns, rows)]
    for record in result.claims:
        for finding in record.findings:
            if finding.why:
                note = f" ({finding.note})" if finding.note else ""
                parts.append(Prose(f"{record.id}, {finding.model}{note}: {finding.why}"))
    return Section("Numbers", "Those of the free choice are for or against, others beside.", parts)


@section("reproduce", 30)
def redrawn_figures(result: ReproduceResult) -> Section | None:
    """Show each figure with the document's own words on it, and why others are not redrawn."""
    if not result.figures:
        return None
    parts: list[Prose | Figure | Table] = []
    rows = []
    for figure in result.figures:
        if figure.curves:
            parts.append(Prose(f"{figure.place}. Published: {figure.published}"))
            draw = partial(draw_curves, figure)
            parts.append(Figure(figure.id, draw, figure.title, f"{figure.title}, redrawn."))
        else:
            rows.append((figure.title, figure.place, figure.published, figure.why_not))
    if rows:
        names = ("figure", "place", "published", "why it is not redrawn")
        columns = [Term(name) for name in names]
        parts.append(Table(columns, rows, "Figures that are not redrawn"))
    return Section("Figures", "From runs of our own, beside what was published.", parts)


def draw_curves(redrawn: RedrawnFigure) -> go.Figure:
    """Draw the curves of a figure: bars where they stand at names, else lines; or a heat map."""
    figure = empty(redrawn.up)
    figure.update_xaxes(title=redrawn.across)
    figure.update_yaxes(title=redrawn.up)
    if redrawn.heat:
        figure.add_heatmap(z=[curve.values for curve in redrawn.curves], zmin=-1, zmax=1)
        return figure
    for index, curve in enumerate(redrawn.curves):
        colour = palette.model_colour(index)
        if curve.at and isinstance(curve.at[0], str):
            figure.add_bar(x=curve.at, y=curve.values, name=curve.name, marker={"color": colour})
        else:
            figure.add_scatter(
                x=curve.at,
                y=curve.values,
                name=curve.name,
                mode="lines+markers",
                line={"color": colour},
            )
    figure.update_layout(showlegend=len(redrawn.curves) > 1)
    return set_log(figure, *redrawn.log)
