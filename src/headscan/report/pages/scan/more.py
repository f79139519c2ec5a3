"""The measures beyond the core, and the probes' tables: a section a group, told by what the result says of each field."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from headscan.report.kit import Cell, Column, Figure, Line, Panels, Prose, Section, Table, section
from headscan.report.kit.figures import heat, lines
from headscan.report.kit.parts import Part
from headscan.report.kit.reading import Entry, bounds, entries, mapping, number, strings, text
from headscan.report.kit.words import end, named
from headscan.report.pages.scan._layers import small
from headscan.report.pages.scan._sites import NULLS, rows_of

if TYPE_CHECKING:
    from headscan.geometry.result import ScanResult

__all__ = ["group_section", "groups", "more"]

LONG = 16  # rows; a longer table is folded
ASIDE = {"_without_sinks": "without sinks", "_without_first": "without position 0"}
"""What a field's name ends in, and what its column says: measures leave out sinks, probes the first positions."""
OWN = {"cones": "More about the cone", "spectra": "More about the spectrum", "norms": "More about lengths"}


@section("scan", 50)
def more(result: ScanResult) -> list[Section]:
    """A section a group that the scan has something beyond the core of."""
    return [group_section(result.document, group) for group in groups(result.document)]


def groups(document: Entry) -> list[str]:
    """The groups that a scan has something beyond the core of, in the result's order."""
    extra = [text(m, "group") for m in _beyond(document).values()]
    extra += [text(probe, "group") for probe in entries(document, "probes")]
    return [name for name in dict.fromkeys([*mapping(document, "groups"), *extra]) if name in extra]


def group_section(document: Entry, group: str) -> Section:
    """Its measures by site, then its probes."""
    parts: list[Part] = []
    measures = {name: words for name, words in _beyond(document).items() if text(words, "group") == group}
    if measures:
        entries_ = entries(document, "sites") + entries(document, "nulls")
        parts += _drawn(document, [one for one in measures.items() if one[1].get("multiple") is not False], "measures")
        parts.append(_table("By site", measures, entries_, bool(measures)))
    for probe in entries(document, "probes"):
        if text(probe, "group") == group:
            parts += _probe(document, probe)
    told = mapping(mapping(document, "groups"), group)
    title = text(told, "title") or OWN.get(group, group.replace("_", " ").capitalize())
    return Section(title, text(told, "lead"), parts, f"more-{group}")


def _beyond(document: Entry) -> dict[str, Entry]:
    """The cloud's measures that are not core."""
    measures = mapping(document, "measures")
    return {name: mapping(measures, name) for name in measures if mapping(measures, name).get("core") is False}


def _probe(document: Entry, probe: Entry) -> list[Part]:
    """One probe: what it is, its pictures, its table, its notes."""
    name, rows = text(probe, "name"), rows_of(document, text(probe, "name"))
    fields = {key: mapping(mapping(probe, "fields"), key) for key in mapping(probe, "fields")}
    literature = f" {text(probe, 'literature')}." if probe.get("literature") else ""
    parts: list[Part] = [Prose(text(probe, "title"), heading=True), Prose(text(probe, "sentence") + literature)]
    parts += [Prose(note) for note in strings(probe, "notes")]
    plotted = [(key, words) for key, words in fields.items() if words.get("plotted") and rows]
    parts += _drawn(document, plotted, name, text(probe, "picture", "layers"))
    if rows and text(probe, "picture") != "own":
        parts.append(_table(f"{text(probe, 'title')}: all numbers", fields, rows, bool(plotted)))
    return parts


def _drawn(document: Entry, fields: list[tuple[str, Entry]], table: str, picture: str = "layers") -> list[Part]:
    """Small multiples of the fields that are plotted."""
    found = []
    for key, words in fields:
        title = text(words, "title", key)
        if picture == "heads":
            draw = partial(_heads, document, table, key)
        elif picture == "pairs":
            draw = partial(_pairs, document, table, key)
        else:
            draw = partial(
                small, document if table == "measures" else _as_scan(document, rows_of(document, table)), key
            )
        found.append(Figure(f"{table}.{key}", draw, title, height=190, title=title, sentence=text(words, "sentence")))
    return [Panels(found, small=True)] if found else []


def _table(title: str, fields: dict[str, Entry], rows: Iterable[Entry], drawn: bool) -> Table:
    """Columns with their explanations, and rows of cells; the rows of nulls say so."""
    shown = list(rows)
    several = len({entry.get("model") for entry in shown}) > 1
    columns, names = [Column("")], []
    for name, words in fields.items():
        end_of_name = "_without_sinks" if "core" in words else "_without_first" if words.get("first") else ""
        for ending in dict.fromkeys(("", end_of_name)):
            if any(name + ending in entry for entry in shown):
                columns.append(_column(name, words, ASIDE.get(ending, "")))
                names.append(name + ending)
    lined = []
    for entry in shown:
        why = "; ".join(strings(entry, "notes")) or "not defined here"
        site = text(entry, "site") or text(entry, "head")
        label = f"{named(text(entry, 'model'))}: {site}" if several else site
        cells = [Cell(_value(entry, field), bounds(entry, field), why) for field in names]
        lined.append(Line(label, cells, NULLS.get(text(entry, "null"), "")))
    return Table(columns, lined, title, folded=drawn or len(lined) > LONG)


def _column(name: str, words: Entry, aside: str) -> Column:
    title = text(words, "title", name)
    ends = words.get("range")
    span = f"{end(ends[0], '−∞')} to {end(ends[1], '∞')}" if isinstance(ends, list) and len(ends) == 2 else ""
    unit = ", ".join(word for word in (text(words, "unit"), span) if word)
    if aside:
        return Column(f"{title}, {aside}", percent=bool(words.get("percent")), where="page")
    return Column(
        title, text(words, "sentence"), text(words, "formula"), unit, name, percent=bool(words.get("percent"))
    )


def _value(entry: Entry, field: str) -> float | str | None:
    value = entry.get(field)
    return value if isinstance(value, str) else number(entry, field)


def _as_scan(document: Entry, rows: list[Entry]) -> Entry:
    """A document whose sites are a probe's rows, so that the same plots can show them."""
    depth = {(e.get("model"), e.get("site")): e.get("depth") for e in entries(document, "sites")}
    placed = [
        dict(row) | {"depth": depth[key]} for row in rows if (key := (row.get("model"), row.get("site"))) in depth
    ]
    real, nulls = [row for row in placed if not row.get("null")], [row for row in placed if row.get("null")]
    return dict(document) | {"sites": real, "nulls": nulls, "measures": {}}


def _pairs(document: Entry, table: str, field: str) -> go.Figure:
    """A field of each set of pairs and model, by site."""
    rows = [row for row in rows_of(document, table) if not row.get("null") and number(row, field) is not None]
    several = len({row.get("model") for row in rows}) > 1
    series: dict[str, tuple[list[str], list[float | None]]] = {}
    for row in rows:
        name = f"{named(text(row, 'model'))}: {text(row, 'set')}" if several else text(row, "set")
        across, up = series.setdefault(name, ([], []))
        across.append(text(row, "site"))
        up.append(number(row, field))
    figure = lines(series)
    figure.update_yaxes(rangemode="tozero")
    return figure


def _heads(document: Entry, table: str, field: str) -> go.Figure:
    """One field of the first model's attention heads: heads across and layers down."""
    rows = [row for row in rows_of(document, table) if not row.get("null") and number(row, field) is not None]
    rows = [row for row in rows if row.get("model") == rows[0].get("model")]
    layers = list(dict.fromkeys(text(row, "site") for row in rows))
    width = max((int(number(row, "head") or 0) for row in rows), default=-1) + 1
    grid: list[list[float | None]] = [[None] * width for _ in layers]
    for row in rows:
        grid[layers.index(text(row, "site"))][int(number(row, "head") or 0)] = number(row, field)
    low = min((v for line in grid for v in line if v is not None), default=0.0)
    hover = "%{y} head %{x}: %{z:.3f}<extra></extra>"
    figure = heat(grid, list(range(width)), layers, hover=hover, low=-1 if low < 0 else 0, high=1)
    figure.update_xaxes(title_text="head")
    return figure
