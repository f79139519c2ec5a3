"""The measures beyond the core, the probes' tables, and how all change from checkpoint to checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from headscan.measures.measure import WITHOUT_SINKS
from headscan.report.kit import Figure, Line, Panels, Prose, Section, Table, Term, section
from headscan.report.kit.figures import heat, lines
from headscan.report.kit.parts import Part, cell_of
from headscan.report.kit.words import named
from headscan.report.pages.scan_layers import NULLS, models, real, small, term

if TYPE_CHECKING:
    from headscan.measures.measure import Field, MeasureWords
    from headscan.run import Row
    from headscan.scanner.result import ProbeRecord, ScanResult

    Words = Mapping[str, MeasureWords] | Mapping[str, Field]

LONG = 16  # rows; a longer table is folded
FIRST = "_without_first"
ASIDE = {WITHOUT_SINKS: "without sinks", FIRST: "without position 0"}
"""What a field's name ends in, and what its column says: measures leave out sinks, probes the first positions."""
OWN = {"cones": "More about the cone", "spectra": "More about the spectrum", "norms": "More about lengths"}


@section("scan", 50)
def more(result: ScanResult) -> list[Section]:
    """A section a group that the scan has something beyond the core of."""
    beyond = {name: words for name, words in result.measures.items() if not words.core}
    extra = [words.group for words in beyond.values()] + [probe.group for probe in result.probes]
    return [_group(result, one) for one in dict.fromkeys([*result.groups, *extra]) if one in extra]


def _group(result: ScanResult, group: str) -> Section:
    """Its measures by site, then its probes."""
    parts: list[Part] = []
    measures = {name: words for name, words in result.measures.items() if not words.core and words.group == group}
    if measures:
        parts += _drawn(result, {name: words for name, words in measures.items() if words.multiple}, "measures")
        parts.append(_table("By site", measures, [*result.sites, *result.nulls], WITHOUT_SINKS, folded=True))
    for probe in result.probes:
        if probe.group == group:
            parts += _probe(result, probe)
    words = result.groups.get(group)
    title = OWN.get(group, group.replace("_", " ").capitalize())
    return Section(words.title if words else title, words.lead if words else "", parts, f"more-{group}")


def _probe(result: ScanResult, probe: ProbeRecord) -> list[Part]:
    """One probe: what it is, its pictures, its table, its notes."""
    rows = result.tables.get(probe.name, [])
    literature = f" {probe.literature}." if probe.literature else ""
    parts: list[Part] = [Prose(probe.title, heading=True), Prose(probe.sentence + literature), *map(Prose, probe.notes)]
    plotted = {name: words for name, words in probe.fields.items() if words.plotted and rows}
    parts += _drawn(result, plotted, probe.name, probe.picture)
    if rows and probe.picture != "own":
        parts.append(_table(f"{probe.title}: all numbers", probe.fields, rows, FIRST, folded=bool(plotted)))
    return parts


def _drawn(result: ScanResult, fields: Words, table: str, picture: str = "layers") -> list[Part]:
    """Small multiples of the fields that are plotted."""
    rows = real(result.tables.get(table, []))
    drawn = []
    for name, words in fields.items():
        if picture in ("heads", "pairs"):
            draw = partial(_heads if picture == "heads" else _pairs, rows, name)
        else:
            draw = partial(small, result if table == "measures" else _as_scan(result, table), name)
        drawn.append(
            Figure(f"{table}.{name}", draw, words.title, height=190, title=words.title, sentence=words.sentence)
        )
    return [Panels(drawn, small=True)] if drawn else []


def _table(title: str, fields: Words, rows: Iterable[Row], aside: str, *, folded: bool) -> Table:
    """Columns with their explanations, and rows of cells; the rows of nulls say so."""
    shown = list(rows)
    several = len({row.get("model") for row in shown}) > 1
    columns, names = [Term("")], []
    for name, words in fields.items():
        ending = aside if getattr(words, "first", True) else ""
        for end in dict.fromkeys(("", ending)):
            if any(name + end in row for row in shown):
                other = Term(f"{words.title}, {ASIDE.get(end)}", percent=words.percent, where="page")
                columns.append(other if end else term(words, name))
                names.append(name + end)
    lined = []
    for row in shown:
        why = "; ".join(row.notes) or "not defined here"
        site = row.text("site") or row.text("head")
        label = f"{named(row.text('model'))}: {site}" if several else site
        lined.append(Line(label, [cell_of(row, name, why) for name in names], NULLS.get(row.text("null"), "")))
    return Table(columns, lined, title, folded=folded or len(lined) > LONG)


def _as_scan(result: ScanResult, table: str) -> ScanResult:
    """A scan whose sites are a probe's rows, so that the same plots can show them."""
    depth = {(row.get("model"), row.get("site")): row.get("depth") for row in result.sites}
    rows = result.tables.get(table, [])
    placed = [row | {"depth": depth[key]} for row in rows if (key := (row.get("model"), row.get("site"))) in depth]
    return replace(result, sites=real(placed), nulls=[row for row in placed if row.get("null")], measures={})


def _pairs(rows: list[Row], field: str) -> go.Figure:
    """A field of each set of pairs and model, by site."""
    rows = [row for row in rows if row.number(field) is not None]
    several = len({row.get("model") for row in rows}) > 1
    series: dict[str, tuple[list[str], list[float | None]]] = {}
    for row in rows:
        name = f"{named(row.text('model'))}: {row.text('set')}" if several else row.text("set")
        across, up = series.setdefault(name, ([], []))
        across.append(row.text("site"))
        up.append(row.number(field))
    return lines(series, zero=True)


def _heads(rows: list[Row], field: str) -> go.Figure:
    """One field of the first model's attention heads: heads across and layers down."""
    rows = [row for row in rows if row.number(field) is not None]
    rows = [row for row in rows if row["model"] == rows[0]["model"]]
    layers = list(dict.fromkeys(row.text("site") for row in rows))
    width = max((int(row.number("head") or 0) for row in rows), default=-1) + 1
    grid: list[list[float | None]] = [[None] * width for _ in layers]
    for row in rows:
        grid[layers.index(row.text("site"))][int(row.number("head") or 0)] = row.number(field)
    low = min((v for line in grid for v in line if v is not None), default=0.0)
    hover = "%{y} head %{x}: %{z:.3f}<extra></extra>"
    figure = heat(grid, list(range(width)), layers, hover=hover, low=-1 if low < 0 else 0, high=1)
    figure.update_xaxes(title_text="head")
    return figure


# ---- From checkpoint to checkpoint: every measure of a scan of several checkpoints of one model, as maps and as curves.
#
# Each field is a heat map, sites down and checkpoints across; what there is one of a model (the head, the loss) has one row.


def checkpoints(result: ScanResult) -> list[str]:
    """The models' names where they look like checkpoints of one model: at least three with the same sites; else none."""
    names = models(result)
    sites = [[row["site"] for row in result.sites if row["model"] == name] for name in names]
    return names if len(names) > 2 and all(each == sites[0] for each in sites) else []


@section("scan", 45)
def course(result: ScanResult) -> Section | None:
    """Maps of the clouds' measures and of the probes, sites by checkpoints."""
    names = checkpoints(result)
    if not names:
        return None

    def figure(table: str, key: str, words: MeasureWords | Field, draw: partial[go.Figure]) -> Figure:
        alt = f"{words.title} over the checkpoints"
        return Figure(f"course.{table}.{key}", draw, alt, "", 220, words.title, words.sentence)

    maps = [
        figure("sites", key, words, partial(_map, result.sites, names, key)) for key, words in result.measures.items()
    ]
    parts: list[Part] = [Prose("Sites by checkpoints", heading=True), Panels(maps, small=True)]
    for probe in result.probes:
        rows = real(result.tables.get(probe.name, []))
        fields = {  # counts of what was looked at are left out
            key: words for key, words in probe.fields.items()
            if words.interval not in ("a count", "known in closed form") and any(row.number(key) is not None for row in rows)
        }  # fmt: skip
        if not fields or len({row["model"] for row in rows}) < len(names) or probe.picture != "layers":
            continue
        drawn = [figure(probe.name, key, words, partial(_map, rows, names, key)) for key, words in fields.items()]
        parts += [Prose(probe.title, heading=True), Panels(drawn, small=True)]
    lead = "The same sites, one model after another. A small model that saturates loses rank late, and its loss rises."
    return Section("From checkpoint to checkpoint", lead, parts)


def _map(rows: list[Row], names: list[str], field: str) -> go.Figure:
    """One field of all sites (down) over the checkpoints in their order (across)."""
    sites = list(dict.fromkeys(row.text("site") for row in rows))
    values = {(row.get("model"), row.get("site")): row.number(field) for row in rows}
    return heat(
        [[values.get((name, site)) for name in names] for site in sites], [named(name) for name in names], sites
    )
