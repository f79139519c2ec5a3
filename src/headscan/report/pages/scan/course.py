"""From checkpoint to checkpoint: every measure of a scan of several checkpoints of one model, as maps and as curves.

A measure of sites is a heat map, sites down and checkpoints across; what there is one of a model (the head, the loss, the
collapse) is a curve over the checkpoints.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from headscan.report.kit import Figure, Panels, Prose, Section, palette, section
from headscan.report.kit.figures import empty, heat, thin
from headscan.report.kit.parts import Part
from headscan.report.kit.reading import Entry, bounds, entries, mapping, number, numbers, text
from headscan.report.kit.words import literal, named
from headscan.report.pages.scan._sites import models, rows_of

if TYPE_CHECKING:
    from headscan.geometry.result import ScanResult

__all__ = ["checkpoints", "course"]


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
