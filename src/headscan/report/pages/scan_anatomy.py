"""The anatomy on a scan's page: which branches build the cone and which take it away, by layer."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from headscan.report.kit import Figure, Line, Panels, Section, Table, Term, palette, section
from headscan.report.kit.figures import heat
from headscan.report.kit.parts import Part, cell_of
from headscan.report.kit.words import named
from headscan.report.pages.scan_layers import models

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headscan.run import Row
    from headscan.scanner.result import ScanResult

SCALE = (palette.MODELS[1][0], palette.ROLES["paper"][0], palette.MODELS[0][0])
"""From what takes away to what builds."""
KINDS = ("branch", "band", "position", "coordinate", "document")


def without_nulls(rows: Iterable[Row]) -> list[Row]:
    """Return the rows of models, without those of nulls."""
    return [row for row in rows if not row.get("null")]


@section("scan", 15)
def anatomy(result: ScanResult) -> Section | None:
    """Return a map of branches by sites for each model, and the parts of its deepest site."""
    rows = without_nulls(result.tables.get("anatomy", []))
    if not rows:
        return None
    with_anatomy = {row["model"] for row in rows}
    names = [name for name in models(result) if name in with_anatomy]
    figures = []
    tables = []
    for number, name in enumerate(names):
        model_rows = [row for row in rows if row["model"] == name]
        title = named(name) if len(names) > 1 else ""
        figures += _branch_figures(model_rows, f"anatomy-{number}", named(name), title)
        tables += _tables(model_rows, title)
    caption = (
        "What each branch adds to the squared length of the mean direction at each site, as a "
        "share: blue builds the cone, rust takes it away, and every column adds up to 1."
    )
    lead = (
        "The average cosine is, up to the diagonal, the squared length of the mean unit state, "
        "and a state is a sum: so the cone is, too."
    )
    parts: list[Part] = [Panels(figures, caption)] if figures else []
    return Section("Who builds the cone?", lead, [*parts, *tables], "anatomy")


def _branch_figures(rows: list[Row], figure_name: str, model: str, title: str) -> list[Figure]:
    """Return the map of a model's branches; none where only one site has any."""
    branches = [row for row in rows if row["kind"] == "branch"]
    if len({row["site"] for row in branches}) < 2:
        return []
    height = 120 + 15 * len({row["part"] for row in branches})
    alt = f"Share of the cone of {model} that each branch makes, by site"
    draw = partial(_branch_map, branches)
    return [Figure(figure_name, draw, alt, height=height, title=title)]


def _branch_map(rows: list[Row]) -> go.Figure:
    """Return the map of shares, with branches down and sites across."""
    sites = list(dict.fromkeys(row.text("site") for row in rows))
    parts = list(dict.fromkeys(row.text("part") for row in rows))
    if "rounding" in parts:
        parts.remove("rounding")
    shares = {(row.text("part"), row.text("site")): row.number("share") for row in rows}
    values = [[shares.get((part, site)) for site in sites] for part in parts]
    sizes = [abs(value) for line in values for value in line if value is not None]
    largest = max(sizes, default=1.0)
    hover = "%{y} at %{x}: %{z:.3f} of the cone<extra></extra>"
    return heat(values, sites, parts, low=-largest, high=largest, scale=SCALE, hover=hover)


def _tables(rows: list[Row], model: str) -> list[Table]:
    """Return one table for each kind of part; `model` is '' where there is only one."""
    tables = []
    for kind in KINDS:
        kind_rows = [row for row in rows if row["kind"] == kind]
        if kind_rows:
            title = f"{model}: by {kind}" if model else f"By {kind}"
            tables.append(_parts_table(kind_rows, title))
    return tables


def _parts_table(rows: list[Row], title: str) -> Table:
    """Return the shares of one kind of part at the deepest site that has any."""
    site = rows[-1].text("site")
    site_rows = [row for row in rows if row.text("site") == site]
    definition = "aᵢ·m/|m|² of the mean unit state m = Σaᵢ."
    columns = [Term(""), Term("share of the cone", definition, percent=True, places=1)]
    names = ["share"]
    if any(row.number("tokens") is not None for row in site_rows):
        columns.append(Term("share of the tokens", percent=True, places=1))
        names.append("tokens")
    lines = []
    for row in site_rows:
        lines.append(Line(row.text("part"), [cell_of(row, name) for name in names]))
    return Table(columns, lines, f"{title} at {site}", folded=True, where="page")
