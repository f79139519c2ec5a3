"""Who builds the cone and who takes it away, layer by layer, and what else it is made of."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from headscan.report.kit import Cell, Column, Figure, Line, Panels, Section, Table, palette, section
from headscan.report.kit.figures import heat
from headscan.report.kit.parts import Part
from headscan.report.kit.reading import Entry, bounds, number, text
from headscan.report.kit.words import named
from headscan.report.pages.scan._sites import models, rows_of

if TYPE_CHECKING:
    from headscan.geometry.result import ScanResult

__all__ = ["anatomy"]

SCALE = (palette.MODELS[1][0], palette.ROLES["paper"][0], palette.MODELS[0][0])
"""From what takes away to what builds."""


@section("scan", 15)
def anatomy(result: ScanResult) -> Section | None:
    """A map of branches by sites for each model, and the parts of its deepest site."""
    rows = [row for row in rows_of(result.document, "anatomy") if not row.get("null")]
    if not rows:
        return None
    names = [name for name in models(result.document) if any(row.get("model") == name for row in rows)]
    parts: list[Part] = []
    figures = []
    for number_, name in enumerate(names):
        own = [row for row in rows if row.get("model") == name and row.get("kind") == "branch"]
        if len({row.get("site") for row in own}) > 1:
            height = 120 + 15 * len({row.get("part") for row in own})
            title = named(name) if len(names) > 1 else ""
            alt = f"Share of the cone of {named(name)} that each branch makes, by site"
            figures.append(Figure(f"anatomy-{number_}", partial(_map, own), alt, height=height, title=title))
    if figures:
        parts.append(
            Panels(
                figures,
                "What each branch adds to the squared length of the mean direction at each site, as a share: blue builds the "
                "cone, rust takes it away, and every column adds up to 1.",
            )
        )
    for name in names:
        parts += [_table(name, kind, rows, len(names) > 1) for kind in ("branch", "band", "position", "coordinate", "document")
                  if any(row.get("model") == name and row.get("kind") == kind for row in rows)]  # fmt: skip
    lead = (
        "The average cosine is, up to the diagonal, the squared length of the mean unit state, and a state is a sum: so the cone "
        "is, too."
    )
    return Section("Who builds the cone?", lead, parts, "anatomy")


def _map(rows: list[Entry]) -> go.Figure:
    """Branches down, sites across."""
    sites, parts = (list(dict.fromkeys(text(row, key) for row in rows)) for key in ("site", "part"))
    parts = [part for part in parts if part != "rounding"]
    found = {(text(row, "part"), text(row, "site")): number(row, "share") for row in rows}
    values = [[found.get((part, site)) for site in sites] for part in parts]
    most = max((abs(value) for line in values for value in line if value is not None), default=1.0)
    return heat(
        values,
        sites,
        parts,
        low=-most,
        high=most,
        scale=SCALE,
        hover="%{y} at %{x}: %{z:.3f} of the cone<extra></extra>",
    )


def _table(model: str, kind: str, rows: list[Entry], several: bool) -> Table:
    """The shares of one kind at the deepest site that has any."""
    own = [row for row in rows if row.get("model") == model and row.get("kind") == kind]
    site = text(own[-1], "site")
    shown = [row for row in own if row.get("site") == site]
    columns = [
        Column(""),
        Column("share of the cone", "aᵢ·m/|m|² of the mean unit state m = Σaᵢ.", percent=True, places=1),
    ]
    tokens = any(number(row, "tokens") is not None for row in shown)
    columns += [Column("share of the tokens", percent=True, places=1)] if tokens else []
    lines = [
        Line(
            text(row, "part"),
            [Cell(number(row, "share"), bounds(row, "share")), *([number(row, "tokens")] if tokens else [])],
        )
        for row in shown
    ]
    title = f"{named(model)}: by {kind} at {site}" if several else f"By {kind} at {site}"
    return Table(columns, lines, title, folded=True, where="page")
