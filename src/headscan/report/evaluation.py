"""Page, table and plot of an evaluation."""

from __future__ import annotations

import plotly.graph_objects as go
from rich.console import RenderableType
from rich.table import Table

from headscan.report import palette
from headscan.report.page import render
from headscan.report.plots import layout
from headscan.report.words import literal

__all__ = ["evaluation_page", "evaluation_plot", "evaluation_table"]


def evaluation_plot(document: dict, arrays: dict | None = None) -> go.Figure:
    """Bars of all numbers that lie between -1 and 1: accuracies, correlations, cosines."""
    figure = go.Figure(layout=layout())
    rows = [row for row in document["rows"] if row[2] is not None and -1 <= row[2] <= 1]
    figure.add_bar(
        y=[literal(f"{task}: {name}") for task, name, _ in rows],
        x=[value for *_, value in rows],
        orientation="h",
        marker={"color": palette.model_colour(0)},
    )
    figure.update_yaxes(autorange="reversed", automargin=True)
    figure.update_xaxes(title_text="value")
    return figure


def evaluation_table(document: dict) -> RenderableType:
    """A rich table: one row a number."""
    table = Table("task", "number", "value", title=document["model"]["name"], title_justify="left")
    for task, name, value in document["rows"]:
        table.add_row(literal(task), literal(name), _number(value))
    return table


def evaluation_page(document: dict, arrays: dict | None = None) -> str:
    """One self-contained HTML page: the numbers, and bars of those that share a scale."""
    rows = [(task, name, _number(value)) for task, name, value in document["rows"]]
    figures = {"scores": evaluation_plot(document)} if rows else {}
    title = f"Evaluation: {document['model']['name']}"
    height = 90 + 22 * len(rows)
    return render(
        "evaluation.html.j2", title=title, figures=figures, rows=rows, protocol=document["protocol"], height=height
    )


def _number(value: float | int | None) -> str:
    return "–" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:.3f}"
