"""The sections of a scan's page beyond the core: further measures, and the probes, by group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from headscan.measures.measure import WITHOUT_SINKS
from headscan.report.kit import Line, Panels, Prose, Section, Table, Term, section
from headscan.report.kit.figures import heat, lines
from headscan.report.kit.parts import Part, cell_of
from headscan.report.kit.words import literal, named
from headscan.report.pages.scan_anatomy import without_nulls
from headscan.report.pages.scan_layers import NULLS, Axis, small, small_figure, spaced, term

if TYPE_CHECKING:
    from headscan.measures.measure import Field, MeasureWords
    from headscan.run import Row
    from headscan.scanner.result import ProbeRecord, ScanResult

    FieldWords = Mapping[str, MeasureWords] | Mapping[str, Field]

LONG = 16  # rows; a longer table is folded
WITHOUT_FIRST = "_without_first"
ENDINGS = {WITHOUT_SINKS: "without sinks", WITHOUT_FIRST: "without position 0"}
"""Endings of a field's name, and of its column's title.

Measures leave out sinks, probes the first positions.
"""
GROUP_TITLES = {
    "cones": "More about the cone",
    "spectra": "More about the spectrum",
    "norms": "More about lengths",
}


@section("scan", 50)
def more(result: ScanResult) -> list[Section]:
    """Return a section for each group of which the scan has something beyond the core."""
    groups = [words.group for words in result.measures.values() if not words.core]
    groups += [probe.group for probe in result.probes]
    ordered = dict.fromkeys([*result.groups, *groups])
    return [_group_section(result, group) for group in ordered if group in groups]


def _group_section(result: ScanResult, group: str) -> Section:
    """Return the measures of a group by site, then its probes."""
    parts: list[Part] = []
    measures = {
        name: words
        for name, words in result.measures.items()
        if not words.core and words.group == group
    }
    if measures:
        multiples = {name: words for name, words in measures.items() if words.multiple}
        rows = [*result.sites, *result.nulls]
        parts += _panels(result, multiples, "measures")
        parts.append(_table("By site", measures, rows, WITHOUT_SINKS, folded=True))
    for probe in result.probes:
        if probe.group == group:
            parts += _probe(result, probe)
    title = GROUP_TITLES.get(group, group.replace("_", " ").capitalize())
    lead = ""
    words = result.groups.get(group)
    if words:
        title = words.title
        lead = words.lead
    return Section(title, lead, parts, f"more-{group}")


def _probe(result: ScanResult, probe: ProbeRecord) -> list[Part]:
    """Return a probe's description, pictures and table."""
    rows = result.tables.get(probe.name, [])
    literature = f" {probe.literature}." if probe.literature else ""
    parts: list[Part] = [
        Prose(probe.title, heading=True),
        Prose(probe.sentence + literature),
        *map(Prose, probe.notes),
    ]
    if not rows:
        return parts
    plotted = {name: words for name, words in probe.fields.items() if words.plotted}
    parts += _panels(result, plotted, probe.name, probe.picture)
    if probe.picture != "own":
        title = f"{probe.title}: all numbers"
        parts.append(_table(title, probe.fields, rows, WITHOUT_FIRST, folded=bool(plotted)))
    return parts


def _panels(
    result: ScanResult, fields: FieldWords, table: str, picture: str = "layers"
) -> list[Panels]:
    """Return small multiples of the fields that are plotted."""
    figures = [
        small_figure(f"{table}.{name}", words, _draw(result, name, table, picture))
        for name, words in fields.items()
    ]
    return [Panels(figures, small=True)] if figures else []


def _draw(result: ScanResult, field: str, table: str, picture: str) -> Callable[[], go.Figure]:
    """Return the function that draws a field of a table in the form `picture`."""
    rows = without_nulls(result.tables.get(table, []))
    if picture == "heads":
        return partial(_head_map, rows, field)
    if picture == "pairs":
        return partial(pair_lines, result, rows, field)
    return partial(small, result if table == "measures" else _as_scan(result, table), field)


def _table(
    title: str, fields: FieldWords, rows: Iterable[Row], ending: str, *, folded: bool
) -> Table:
    """Return all numbers of the fields, with and without what `ending` leaves out."""
    rows = list(rows)
    several = len({row.get("model") for row in rows}) > 1
    columns = [Term("")]
    names = []
    for name, words in fields.items():
        if any(name in row for row in rows):
            columns.append(term(words, name))
            names.append(name)
        if getattr(words, "first", True) and any(name + ending in row for row in rows):
            heading = f"{words.title}, {ENDINGS[ending]}"
            columns.append(Term(heading, percent=words.percent, where="page"))
            names.append(name + ending)
    lines = []
    for row in rows:
        why = "; ".join(row.notes) or "not defined here"
        label = row.text("site") or row.text("head")
        if several:
            label = f"{named(row.text('model'))}: {label}"
        cells = [cell_of(row, name, why) for name in names]
        lines.append(Line(label, cells, NULLS.get(row.text("null"), "")))
    return Table(columns, lines, title, folded=folded or len(lines) > LONG)


def _as_scan(result: ScanResult, table: str) -> ScanResult:
    """Return a scan whose sites are a probe's rows, so that the same plots can show them."""
    depths = {(row.get("model"), row.get("site")): row.get("depth") for row in result.sites}
    rows = []
    for row in result.tables.get(table, []):
        site = (row.get("model"), row.get("site"))
        if site in depths:
            rows.append(row | {"depth": depths[site]})
    nulls = [row for row in rows if row.get("null")]
    return replace(result, sites=without_nulls(rows), nulls=nulls, measures={})


def pair_lines(result: ScanResult, rows: list[Row], field: str) -> go.Figure:
    """Return a field of each set of pairs and model, by site, on the axis of all layers."""
    rows = [row for row in rows if row.number(field) is not None]
    several = len({row.get("model") for row in rows}) > 1
    axis = Axis(result.sites, result.models)
    series: dict[str, tuple[list[float], list[float | None]]] = {}
    for row in sorted(rows, key=lambda row: axis.place(row).x):
        name = row.text("set")
        if several:
            name = f"{named(row.text('model'))}: {name}"
        x, y = series.setdefault(name, ([], []))
        x.append(axis.place(row).x)
        y.append(row.number(field))
    figure = lines(series, zero=True)
    ticks = axis.ticks(result.sites)
    positions = spaced(sorted(ticks))
    labels = [literal(ticks[x]) for x in positions]
    return figure.update_xaxes(tickangle=0, tickvals=positions, ticktext=labels)


def _head_map(rows: list[Row], field: str) -> go.Figure:
    """Return a field of the first model's attention heads: heads across and layers down."""
    rows = [row for row in rows if row.number(field) is not None]
    rows = [row for row in rows if row["model"] == rows[0]["model"]]
    layers = list(dict.fromkeys(row.text("site") for row in rows))
    values = {(row.text("site"), _head_index(row)): row.number(field) for row in rows}
    heads = list(range(max(map(_head_index, rows), default=-1) + 1))
    grid = [[values.get((layer, head)) for head in heads] for layer in layers]
    has_negative = any((value or 0.0) < 0 for value in values.values())
    hover = "%{y} head %{x}: %{z:.3f}<extra></extra>"
    figure = heat(grid, heads, layers, hover=hover, low=-1 if has_negative else 0, high=1)
    return figure.update_xaxes(title_text="head")


def _head_index(row: Row) -> int:
    return int(row.number("head") or 0)
