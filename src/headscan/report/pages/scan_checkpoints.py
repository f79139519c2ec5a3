"""A scan of several checkpoints of one model: every measure and probe, as maps.

Each field is a heat map, sites down and checkpoints across; a field of which there is one a model
(the head, the loss) has one row.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from headscan.report.kit import Panels, Prose, Section, section
from headscan.report.kit.figures import heat
from headscan.report.kit.parts import Part
from headscan.report.kit.words import named
from headscan.report.pages.scan_anatomy import without_nulls
from headscan.report.pages.scan_layers import models, small_figure

if TYPE_CHECKING:
    from headscan.measures.measure import Field, MeasureWords
    from headscan.run import Row
    from headscan.scanner.result import ProbeRecord, ScanResult

    FieldWords = Mapping[str, MeasureWords] | Mapping[str, Field]

FEWEST_CHECKPOINTS = 3
COUNTS = ("a count", "known in closed form")
"""Fields that have no interval for these reasons count what was looked at: they are no measures."""


def checkpoints(result: ScanResult) -> list[str]:
    """Return the models' names where they look like checkpoints of one model, else none.

    They do where there are at least three with the same sites.
    """
    names = models(result)
    if len(names) < FEWEST_CHECKPOINTS:
        return []
    sites = [[row["site"] for row in result.sites if row["model"] == name] for name in names]
    return names if all(model_sites == sites[0] for model_sites in sites) else []


@section("scan", 45)
def course(result: ScanResult) -> Section | None:
    """Return maps of the clouds' measures and of the probes, sites by checkpoints."""
    names = checkpoints(result)
    if not names:
        return None
    parts: list[Part] = [
        Prose("Sites by checkpoints", heading=True),
        _maps("sites", result.measures, result.sites, names),
    ]
    for probe in result.probes:
        rows = without_nulls(result.tables.get(probe.name, []))
        fields = _measured_fields(probe, rows)
        has_all_models = len({row["model"] for row in rows}) >= len(names)
        if fields and has_all_models and probe.picture == "layers":
            parts.append(Prose(probe.title, heading=True))
            parts.append(_maps(probe.name, fields, rows, names))
    lead = (
        "The same sites, one model after another. A small model that saturates loses rank late, "
        "and its loss rises."
    )
    return Section("From checkpoint to checkpoint", lead, parts)


def _measured_fields(probe: ProbeRecord, rows: list[Row]) -> dict[str, Field]:
    """Return the fields of a probe that have numbers, without counts."""
    fields = {}
    for name, words in probe.fields.items():
        has_numbers = any(row.number(name) is not None for row in rows)
        if has_numbers and words.interval not in COUNTS:
            fields[name] = words
    return fields


def _maps(table: str, fields: FieldWords, rows: list[Row], names: list[str]) -> Panels:
    """Return a small map of each field."""
    figures = []
    for name, words in fields.items():
        draw = partial(_map, rows, names, name)
        alt = f"{words.title} over the checkpoints"
        figures.append(small_figure(f"course.{table}.{name}", words, draw, alt, height=220))
    return Panels(figures, small=True)


def _map(rows: list[Row], names: list[str], field: str) -> go.Figure:
    """Return a field of all sites (down) over the checkpoints in their order (across)."""
    sites = list(dict.fromkeys(row.text("site") for row in rows))
    values = {(row.get("model"), row.get("site")): row.number(field) for row in rows}
    grid = [[values.get((name, site)) for name in names] for site in sites]
    return heat(grid, [named(name) for name in names], sites)
