"""Page, table and plot of an evaluation."""

from __future__ import annotations

import plotly.graph_objects as go
from rich.console import RenderableType
from rich.table import Table

from headscan.report import palette
from headscan.report.page import render
from headscan.report.plots import layout
from headscan.report.scan import flat
from headscan.report.terminal import clean
from headscan.report.words import literal

__all__ = ["evaluation_page", "evaluation_plot", "evaluation_table"]


PARADIGM = "paradigms "
"""What the names of BLiMP's single paradigms begin with: too many to stand among the others."""


def evaluation_plot(document: dict, arrays: dict | None = None, *, paradigms: bool = False) -> go.Figure:
    """Bars of all numbers that lie between -1 and 1 (accuracies, correlations, cosines), or those of the paradigms."""
    figure = go.Figure(layout=layout())
    rows = [
        (task, name, value)
        for task, name, value in document["rows"]
        if value is not None and -1 <= value <= 1 and name.startswith(PARADIGM) == paradigms
    ]
    if paradigms:
        rows.sort(key=lambda row: -row[2])
        figure.add_vline(x=0.5, line={"color": palette.ROLES["muted"][0], "dash": "dot"})
    figure.add_bar(
        y=[literal(_words(name) if paradigms else f"{task}: {_words(name)}") for task, name, _ in rows],
        x=[value for *_, value in rows],
        orientation="h",
        marker={"color": palette.model_colour(0)},
    )
    figure.update_yaxes(autorange="reversed", automargin=True, showgrid=False)
    figure.update_xaxes(title_text="value", showgrid=True)
    return figure


def evaluation_table(document: dict) -> RenderableType:
    """A rich table: one row a number, single paradigms left to the page."""
    table = Table("task", "number", "value", title=document["model"]["name"], title_justify="left")
    for task, name, value in document["rows"]:
        if not name.startswith(PARADIGM):
            table.add_row(clean(task), clean(_words(name)), _number(value))
    return table


def evaluation_page(document: dict, arrays: dict | None = None) -> str:
    """One self-contained HTML page: bars of the numbers that share a scale, BLiMP's paradigms, and all as a table."""
    rows = [(task, _words(name), _number(value)) for task, name, value in document["rows"]]
    many = sum(name.startswith(PARADIGM) for _, name, _ in document["rows"])
    figures = {"scores": evaluation_plot(document)} if len(rows) > many else {}
    figures |= {"paradigms": evaluation_plot(document, paradigms=True)} if many else {}
    protocol = document["protocol"]
    return render(
        "evaluation.html.j2",
        title=f"Evaluation: {document['model']['name']}",
        figures=figures,
        rows=rows,
        protocol=protocol,
        heights={"scores": 90 + 22 * (len(rows) - many), "paradigms": 90 + 18 * many},
        facts=flat({key: value for key, value in protocol.items() if key not in ("command", "versions")}),
        versions=flat(protocol.get("versions") or {}),
    )


def _words(name: str) -> str:
    return name.removeprefix(PARADIGM).replace("_", " ")


def _number(value: float | int | None) -> str:
    return "–" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:.3f}"
