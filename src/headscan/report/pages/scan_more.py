"""The measures beyond the core, and the probes' tables: a section a group, told by what the result says of each field."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from headscan.report.kit import Cell, Column, Figure, Line, Panels, Prose, Section, Table, palette, section
from headscan.report.kit.figures import empty, heat, lines, thin
from headscan.report.kit.parts import Part
from headscan.report.kit.reading import Entry, bounds, entries, mapping, number, numbers, strings, text
from headscan.report.kit.words import end, literal, named
from headscan.report.pages.scan_layers import NULLS, models, rows_of, small

if TYPE_CHECKING:
    from headscan.scanner.result import ScanResult


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


# ---- From checkpoint to checkpoint: every measure of a scan of several checkpoints of one model, as maps and as curves.
#
# A measure of sites is a heat map, sites down and checkpoints across; what there is one of a model (the head, the loss, the
# collapse) is a curve over the checkpoints.


def checkpoints(document: Entry) -> list[str]:
    """The models' names where they look like checkpoints of one model: at least three with the same sites; else none."""
    names = models(document)
    sites = [[e.get("site") for e in entries(document, "sites") if e.get("model") == name] for name in names]
    return names if len(names) > 2 and all(found == sites[0] for found in sites) else []


@section("scan", 45)
def course(result: ScanResult) -> Section | None:
    """Maps of the clouds' measures and of the probes by site, curves of the probes of which there is one a model."""
    document: Entry = result.document
    names = checkpoints(document)
    if not names:
        return None
    sites, measures = entries(document, "sites"), mapping(document, "measures")
    parts: list[Part] = [
        Prose("Sites by checkpoints", heading=True),
        Panels([_figure("sites", key, mapping(measures, key), partial(_map, sites, names, key)) for key in measures], small=True),
    ]  # fmt: skip
    for probe in entries(document, "probes"):
        rows = [row for row in rows_of(document, text(probe, "name")) if not row.get("null")]
        fields = _told(probe, rows)
        if (
            not fields
            or len({row.get("model") for row in rows}) < len(names)
            or text(probe, "picture", "layers") != "layers"
        ):
            continue
        by_site = {row.get("site") for row in rows} <= {entry.get("site") for entry in sites}
        draw = _map if by_site else _curve
        drawn = [
            _figure(text(probe, "name"), key, words, partial(draw, rows, names, key)) for key, words in fields.items()
        ]
        if any(numbers(row, "singular_values") for row in rows):
            drawn += _spectra(rows)
        parts += [Prose(text(probe, "title"), heading=True), Panels(drawn, small=True)]
    lead = "The same sites, one model after another. A small model that saturates loses rank late, and its loss rises."
    return Section("From checkpoint to checkpoint", lead, parts)


def _figure(table: str, key: str, words: Entry, draw: partial[go.Figure]) -> Figure:
    title = text(words, "title", key)
    return Figure(
        f"course.{table}.{key}", draw, f"{title} over the checkpoints", "", 220, title, text(words, "sentence")
    )


def _told(probe: Entry, rows: list[Entry]) -> dict[str, Entry]:
    """The numeric fields of a probe; counts of what was looked at are left out."""
    fields = mapping(probe, "fields")
    return {
        key: mapping(fields, key)
        for key in fields
        if mapping(fields, key).get("interval") not in ("a count", "known in closed form")
        and any(number(row, key) is not None for row in rows)
    }


def _map(found: list[Entry], names: list[str], field: str) -> go.Figure:
    """One field of all sites (down) over the checkpoints in their order (across)."""
    sites = list(dict.fromkeys(text(entry, "site") for entry in found))
    values = {(entry.get("model"), entry.get("site")): number(entry, field) for entry in found}
    grid = [[values.get((name, site)) for name in names] for site in sites]
    return heat(grid, [named(name) for name in names], sites)


def _curve(rows: list[Entry], names: list[str], field: str) -> go.Figure:
    """One field over the checkpoints: a line for each table or site that the rows speak of, with intervals as bars."""
    figure = empty()
    for index, site in enumerate(dict.fromkeys(text(row, "site") for row in rows)):
        by_name: dict[str, Entry] = {text(row, "model"): row for row in rows if text(row, "site") == site}
        values = [number(by_name.get(name, {}), field) for name in names]
        ends = [bounds(by_name.get(name, {}), field) for name in names]
        reach = [(b[1] - v, v - b[0]) if b and v is not None else (0, 0) for b, v in zip(ends, values, strict=True)]
        up, down = [one[0] for one in reach], [one[1] for one in reach]
        figure.add_scatter(
            x=[literal(named(name)) for name in names], y=values, mode="lines+markers", name=literal(site),
            error_y={"type": "data", "symmetric": False, "array": up, "arrayminus": down} if any(ends) else None,
            line={"color": palette.model_colour(index)},
        )  # fmt: skip
    figure.update_layout(showlegend=len(figure.data) > 1)
    return figure


def _spectra(rows: list[Entry]) -> list[Figure]:
    """σ_k/σ_1 of the head by rank and checkpoint (Godey et al. 2024, their picture of saturation), and its W-error."""
    spectra = {
        named(text(row, "model")): values
        for row in rows
        if (values := numbers(row, "singular_values")) and values[0] > 0
    }
    if not spectra:
        return []
    ranks = thin(max(map(len, spectra.values())), 60)
    grid = [[v[k] / v[0] if k < len(v) else None for v in spectra.values()] for k in ranks]
    hover = "%{x}, rank %{y}: %{z:.3f}<extra></extra>"
    shown = heat(grid, list(spectra), [str(k + 1) for k in ranks], hover=hover)
    return [
        Figure("course.spectrum", shown, "Singular values of the head by rank and checkpoint", "", 220, "spectrum",
               "σ_k/σ_1 of the head: ranks down."),
        Figure("course.error", _errors(spectra), "What each rank of the head leaves out", "", 220, "W-error",
               "What rank k leaves out, a line each."),
    ]  # fmt: skip


def _errors(spectra: dict[str, list[float]]) -> go.Figure:
    """W-error(k) = ‖σ_{k+1:}‖/‖σ‖ of each checkpoint's head."""
    figure = empty("rank")
    for (name, values), (colour, _) in zip(spectra.items(), palette.depth_colours(len(spectra)), strict=True):
        rest, errors = 0.0, [0.0]
        for value in reversed(values):
            rest += value * value
            errors.append(rest)
        errors = [(error / rest) ** 0.5 for error in reversed(errors)]
        ranks = thin(len(errors))
        figure.add_scatter(
            x=ranks, y=[float(f"{errors[k]:.5g}") for k in ranks], mode="lines", name=literal(name), line={"color": colour},
            hovertemplate="rank %{x}: <b>%{y:.3f}</b><extra>" + literal(name) + "</extra>",
        )  # fmt: skip
    figure.update_layout(showlegend=False)
    return figure
