"""Pages, tables and plots of vanilla against headless."""

from __future__ import annotations

import plotly.graph_objects as go
from rich.console import RenderableType
from rich.table import Table

from headscan.report import palette
from headscan.report.page import render
from headscan.report.plots import layout
from headscan.report.words import literal

__all__ = ["twins_page", "twins_plot", "twins_table"]


def twins_plot(document: dict, arrays: dict | None = None, *, over: str = "step", value: str = "nats") -> go.Figure:
    """One line a run, one colour an arm: held-out nats a token, or the cosine of a site, over steps or seconds.

    over: "step" or "seconds". value: "nats" (the arm's best reading) or the name of a site.
    """
    figure = go.Figure(layout=layout())
    arms = list(dict.fromkeys(run["arm"] for run in document["runs"]))
    seen: set[str] = set()
    for run in document["runs"]:
        index = arms.index(run["arm"])
        figure.add_scatter(
            x=[point[over] for point in run["points"]],
            y=[_value(point, value) for point in run["points"]],
            name=literal(run["arm"]),
            legendgroup=run["arm"],
            showlegend=run["arm"] not in seen,
            mode="lines+markers",
            line=palette.model_line(index),
        )
        seen.add(run["arm"])
    figure.update_xaxes(title_text="step" if over == "step" else "processor seconds")
    figure.update_yaxes(title_text="held-out nats a token" if value == "nats" else f"average cosine, {literal(value)}")
    return figure


def layers_plot(document: dict) -> go.Figure:
    """Average cosine by layer at the end of each run."""
    figure = go.Figure(layout=layout())
    arms = list(dict.fromkeys(run["arm"] for run in document["runs"]))
    seen: set[str] = set()
    for run in document["runs"]:
        index, sites = arms.index(run["arm"]), run["points"][-1]["sites"]
        figure.add_scatter(
            x=[literal(site["site"]) for site in sites],
            y=[site["average_cosine"] for site in sites],
            name=literal(run["arm"]),
            legendgroup=run["arm"],
            showlegend=run["arm"] not in seen,
            mode="lines+markers",
            line=palette.model_line(index),
        )
        seen.add(run["arm"])
    figure.update_yaxes(title_text="average cosine")
    return figure


def twins_table(document: dict) -> RenderableType:
    """A rich table: mean over seeds and its 95 % interval, at equal tokens and at equal time."""
    table = Table("arm", "at", "held-out nats", "cosine, last block", "cosine, final norm", "seeds")
    for row in document["summary"]:
        cells = (_cell(row[key]) for key in ("nats", "last_block", "final_norm"))
        table.add_row(row["arm"], row["at"], *cells, str(row["nats"]["n"]))
    return table


def twins_page(document: dict, arrays: dict | None = None) -> str:
    """One self-contained HTML page: the comparison, quality against compute, the cone over training and by layer."""
    last = document["last_block"]
    figures = {
        "tokens": twins_plot(document),
        "time": twins_plot(document, over="seconds"),
        "cosine": twins_plot(document, value=last),
        "layers": layers_plot(document),
    }
    rows = [
        (row["arm"], row["at"], *(_cell(row[key]) for key in ("nats", "last_block", "final_norm")))
        for row in document["summary"]
    ]
    title = "Headless against vanilla"
    return render("twins.html.j2", title=title, figures=figures, rows=rows, last=last, protocol=document["protocol"])


def _value(point: dict, value: str) -> float | None:
    if value == "nats":
        return point["nats"].get("bias", point["nats"].get("head"))
    return next((site["average_cosine"] for site in point["sites"] if site["site"] == value), None)


def _cell(found: dict) -> str:
    interval = found["interval"]
    return f"{found['mean']:.3f}" + (f" [{interval[0]:.3f}, {interval[1]:.3f}]" if interval else "")
