"""The ledger's page: figures of a document redrawn, beside what was published."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from headscan.report.kit import Column, Figure, Prose, Section, Table, palette, section
from headscan.report.kit.figures import empty

if TYPE_CHECKING:
    from headscan.claims.figure import RedrawnFigure
    from headscan.claims.ledger import ReproduceResult

__all__ = ["redrawn_figures"]


@section("reproduce", 30)
def redrawn_figures(result: ReproduceResult) -> Section | None:
    """Each figure with the document's own words on it; those that are not redrawn are told with the reason."""
    if not result.figures:
        return None
    parts: list[Prose | Figure | Table] = []
    for one in result.figures:
        if one.curves:
            parts.append(Prose(f"{one.place}. Published: {one.published}"))
            parts.append(Figure(one.id, partial(drawn, one), one.title, f"{one.title}, redrawn."))
    left = [one for one in result.figures if not one.curves]
    rows = [(one.title, one.place, one.published, one.why_not) for one in left]
    if rows:
        heads = [Column(name, text=True) for name in ("figure", "place", "published", "why it is not redrawn")]
        parts.append(Table(heads, rows, "Figures that are not redrawn"))
    return Section("Figures", "From runs of our own, beside what was published.", parts)


def drawn(one: RedrawnFigure) -> go.Figure:
    """The curves of a figure; bars where they stand at names."""
    figure = empty(one.up)
    for index, curve in enumerate(one.curves):
        colour = palette.model_colour(index)
        if curve.at and isinstance(curve.at[0], str):
            figure.add_bar(x=curve.at, y=curve.values, name=curve.name, marker={"color": colour})
        else:
            figure.add_scatter(
                x=curve.at, y=curve.values, name=curve.name, mode="lines+markers", line={"color": colour}
            )
    figure.update_layout(showlegend=len(one.curves) > 1)
    figure.update_xaxes(title=one.across, type="log" if "x" in one.log else None)
    figure.update_yaxes(title=one.up, type="log" if "y" in one.log else None)
    return figure
