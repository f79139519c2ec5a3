"""The page of a scan: its head with the cones, differences, all numbers, what intervals rest on."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from headscan.measures.measure import WITHOUT_SINKS, leading
from headscan.report.kit import Cell, Head, Line, Prose, Raw, Section, Table, Term, page, section
from headscan.report.kit.parts import Part, cell_of
from headscan.report.kit.words import in_unit, named, number, value_of
from headscan.report.pages.scan_layers import (
    NULLS,
    by_layer,
    has_sinks,
    knows,
    last_block,
    models,
    of_model,
    term,
    unit_of,
)
from headscan.run.errors import BadInput

if TYPE_CHECKING:
    from headscan.run import Row
    from headscan.scanner.result import ScanResult

RADIUS = 100.0
TILT = 0.24  # height of a circle seen from the side, by its width
ARC = 34.0
UNDEFINED = "not defined at one of the two"
LEAST_SINK_ENERGY = 0.1  # share of the energy from which sinks are mentioned


class ConeDrawing(NamedTuple):
    """Lengths for `pieces.html.j2`: apex at (0, 0), axis upwards, unit sphere of radius 100.

    `touch` is the point at which a side ends.
    """

    angle: float
    height: float
    rim: float
    flat: float
    touch: tuple[float, float] | None
    arc_x: float
    arc_y: float
    arc: float = ARC
    radius: float = RADIUS
    equator: float = RADIUS * TILT


def half_angle(cosine: object) -> float | None:
    """Return the half-angle in degrees of the cone that an average cosine amounts to.

    If unit vectors have the mean cosine c to one another, their mean has (for many vectors) the
    length √c, and that is also their mean cosine to the mean's direction: seen from the origin they
    lie about the axis at the angle arccos √c. It is 0 if all point the same way, 90 if they have no
    common direction, None where it is undefined.

    >>> round(half_angle(0.97)), round(half_angle(0.4)), half_angle(-0.01), half_angle(None)
    (10, 51, 90.0, None)
    """
    value = value_of(cosine)
    if value is None:
        return None
    return math.degrees(math.acos(math.sqrt(min(max(value, 0.0), 1.0))))


def drawing(cosine: object) -> ConeDrawing | None:
    """Return the drawing of the cone of an average cosine; None where it is undefined."""
    angle = half_angle(cosine)
    if angle is None:
        return None
    sine = math.sin(math.radians(angle))
    cosine_of_angle = math.cos(math.radians(angle))
    height = RADIUS * cosine_of_angle
    rim = RADIUS * sine
    flat = TILT * rim
    # The silhouette touches the rim; a cone so wide that its rim surrounds the apex has none.
    touch = None
    if height > flat:
        touch_x = rim * math.sqrt(1 - (flat / height) ** 2)
        touch_y = -height + flat**2 / height
        touch = (round(touch_x, 2), round(touch_y, 2))
    return ConeDrawing(
        angle=angle,
        height=round(height, 2),
        rim=round(rim, 2),
        flat=round(flat, 2),
        touch=touch,
        arc_x=round(ARC * sine, 2),
        arc_y=round(-ARC * cosine_of_angle, 2),
    )


@page("scan")
def scan(result: ScanResult) -> Head:
    """Return the head of a scan's page: its sentence, and the cone of each model's last block."""
    names = models(result)
    if not names or not result.sites:
        raise BadInput("The result is no scan: it has no models or no sites.")
    heads = [_cone_of(result, name) for name in names]
    cones = {"heads": heads, "several": len(names) > 1, "unit": unit_of(result)}
    return Head(
        [named(name) for name in names],
        _subtitle(result),
        switch=knows(result, "average_cosine") and has_sinks(result),
        plots={measure: partial(by_layer, result, measure) for measure in result.measures},
        glossary=[_explained(result, name) for name in result.measures],
        top=[Raw("scan_cones.html.j2", cones)],
    )


def _explained(result: ScanResult, name: str) -> Term:
    """Return the words of a measure, in the unit of what was read."""
    words = result.measures[name]
    sentence = in_unit(words.sentence, unit_of(result))
    return term(replace(words, sentence=sentence), name)


def _subtitle(result: ScanResult) -> str:
    """Say how many tokens of which text were read, in which windows, at how many sites."""
    text = result.protocol.text
    counts = [text.tokens if text else None, *(row.number("tokens") for row in result.sites)]
    tokens = next((f"{int(count):,}" for count in counts if count is not None), "The")
    source = f" of {named(text.source)}" if text and text.source else ""
    unit = text.unit if text else "tokens"
    cut = text.cut if text else f"windows of {result.protocol.settings.get('context') or '—'}"
    windows = f", in {cut}" if cut else ""
    model_count = len(models(result))
    several = f"{model_count} models, " if model_count > 1 else ""
    sites = f"{len(result.sites)} sites" if len(result.sites) > 1 else "1 site"
    return f"{tokens} {unit}{source}{windows}, {several}{sites}."


def _cone_of(result: ScanResult, model: str) -> dict[str, object]:
    """Return what the top of the page shows of a model: the cone of its last block."""
    rows = of_model(result.sites, model)
    row = last_block(rows)
    assert row is not None
    field = leading(row, "average_cosine")
    cosine = row.number(field)
    interval = row.interval(field) if cosine is not None else None
    alarming = any(
        finding.code == "HS101" and finding.model == model and finding.level == "alarm"
        for finding in result.findings
    )
    return {
        "name": named(model),
        "alarming": alarming,
        "site": row.text("site"),
        "cosine": cosine,
        "cone": drawing(cosine),
        "interval": " to ".join(map(number, interval or ())),
        "notes": row.notes,
        "sinks": in_unit(_sinks_of(rows), unit_of(result)),
    }


def _sinks_of(rows: list[Row]) -> str:
    """Say what a model's sinks do; '' where they carry little energy."""
    row = max(rows, key=lambda row: row.number("sink_energy") or 0.0)
    energy = row.number("sink_energy") or 0.0
    if energy < LEAST_SINK_ENERGY:
        return ""
    share = row.number("sink_share") or 0.0
    length = row.number("sink_length") or 0
    energy_text = f"{energy:.1%}" if energy > 0.99 else f"{energy:.0%}"
    rank_with = row.number("effective_rank")
    rank_without = row.number("effective_rank_without_sinks")
    ranks = ""
    if rank_with and rank_without:
        ranks = f"; with them the effective rank is {rank_with:.1f} instead of {rank_without:.0f}"
    return (
        f"Without sink tokens: they ({share:.1%} of the tokens, {length:.0f} times as long as "
        f"others) carry {energy_text} of the energy at {row.text('site')}{ranks}."
    )


@section("scan", 98)
def certainty(result: ScanResult) -> Section | None:
    """Return the effective number of independent documents or windows of each model."""
    parts: list[Part] = []
    for model in models(result):
        rows = [row for row in of_model(result.sites, model) if row.get("clusters")]
        if rows:
            parts.append(Prose(_effective_clusters(named(model), rows, unit_of(result))))
    if not parts:
        return None
    lead = (
        "Documents count as independent. Windows of one continuous text depend on each other, so "
        "they count as fewer."
    )
    if unit_of(result) == "vectors":
        lead = "Neighbouring rows may depend on each other, so blocks of rows count as fewer."
    return Section("What the intervals are based on", lead, parts)


def _effective_clusters(model: str, rows: list[Row], unit: str) -> str:
    """Say how many independent clusters the least certain interval of a model's sites rests on."""
    counts = []
    for row in rows:
        count = row.number(leading(row, "effective_clusters")) or 0.0
        counts.append((count, row.text("site")))
    least, least_site = min(counts)
    most, most_site = max(counts)
    count_text = f"{most:.0f}"
    if round(least) < round(most):
        count_text = f"{least:.0f} ({least_site}) to {most:.0f} ({most_site})"
    nouns = dict.fromkeys(row.text("clusters") for row in rows)
    noun = " or ".join("blocks of rows" if unit == "vectors" else noun for noun in nouns)
    if count_text == "1":
        noun = noun.replace("windows", "window").replace("documents", "document")
        noun = noun.replace("blocks", "block")
    return f"{model}: intervals are based on about {count_text} independent {noun}."


@section("scan", 99)
def differences(result: ScanResult) -> Section | None:
    """Return the differences of layers, models and random weights.

    There is a row for each pair of sites and a column for each core measure.
    """
    if not result.differences:
        return None
    core = [name for name, words in result.measures.items() if words.core]
    cells_by_pair: dict[tuple[str, str, str, str], dict[str, Cell]] = {}
    for row in result.differences:
        pair = (row.model_a, row.site_a, row.model_b, row.site_b)
        interval = None if row.interval is None else (row.interval[0], row.interval[1])
        cells = cells_by_pair.setdefault(pair, {})
        cells[row.measure] = Cell(row.difference, interval, UNDEFINED)
    lines = []
    for (model_a, site_a, model_b, site_b), cells in cells_by_pair.items():
        minus = site_b if model_a == model_b else f"{named(model_b)} {site_b}"
        values = [cells.get(name, Cell(None, why=UNDEFINED)) for name in core]
        lines.append(Line(f"{named(model_a)} {site_a}", [minus, *values]))
    columns = ["of", "minus", *(result.measures[name].title for name in core)]
    lead = (
        "Errors of sites that read the same text are correlated, so an interval of a "
        "difference is narrower than two intervals suggest. Each layer minus the previous "
        "one; last minus first; each minus the same site of the previous model, and of "
        "random weights."
    )
    table = Table(columns, lines, "Differences", folded=True, where="page")
    return Section("Differences", lead, [table])


@section("scan", 100)
def numbers(result: ScanResult) -> Section:
    """Return the core measures without sink tokens and with them, a table a model and null."""
    core = {name: words for name, words in result.measures.items() if words.core}
    columns = [Term("site"), Term(unit_of(result)), Term("width")]
    fields = ["tokens", "width"]
    for name, words in core.items():
        places = 4 if words.range in ((0, 1), (-1, 1)) else None
        if not has_sinks(result):
            columns.append(Term(words.title, places=places))
            fields.append(name)
            continue
        columns.append(Term("without", group=words.title, places=places))
        columns.append(Term("with", group=words.title, places=places))
        fields += [name + WITHOUT_SINKS, name]
    tables = []
    for model in models(result):
        rows = of_model(result.sites, model)
        tables.append(_numbers_table(named(model), columns, fields, rows, folded=False))
        for null, null_name in NULLS.items():
            rows = of_model(result.nulls, model, null)
            title = f"{named(model)}: {null_name}"
            tables.append(_numbers_table(title, columns, fields, rows, folded=True))
    lead = "Small figures are 95 % intervals."
    if has_sinks(result):
        lead += " “Without” leaves out sink tokens: longer than 3 times the median of their window."
    return Section("All numbers", lead, tables)


def _numbers_table(
    title: str, columns: list[Term], fields: list[str], rows: list[Row], *, folded: bool
) -> Table:
    """Return a table of fields of the rows; its footnotes are the rows' notes."""
    footnotes = list(dict.fromkeys(note for row in rows for note in row.notes))
    lines = []
    for row in rows:
        why = " ".join(row.notes) or "not defined here"
        cells = [cell_of(row, field, why) for field in fields]
        marks = [footnotes.index(note) + 1 for note in row.notes]
        lines.append(Line(row.text("site"), cells, marks=marks))
    return Table(columns, lines, title, folded=folded, footnotes=footnotes, where="page")
