"""Pages, tables and plots of a training run."""

from __future__ import annotations

import plotly.graph_objects as go
from rich.console import Group, RenderableType
from rich.table import Table

from headscan.report import palette
from headscan.report.page import render
from headscan.report.plots import layout
from headscan.report.words import literal

__all__ = ["train_page", "train_plot", "train_table"]


def train_plot(document: dict, arrays: dict | None = None) -> go.Figure:
    """The learning curve: loss, and loss without its floor, over steps."""
    figure = go.Figure(layout=layout())
    for index, key in enumerate(("loss", "floor_corrected_loss")):
        points = [(entry["step"], entry[key]) for entry in document["curve"] if entry.get(key) is not None]
        figure.add_scatter(
            x=[x for x, _ in points],
            y=[y for _, y in points],
            name=key.replace("_", " "),
            mode="lines",
            line=palette.model_line(index),
        )
    figure.update_xaxes(title_text="step")
    figure.update_yaxes(title_text="nats")
    return figure


def geometry_plot(document: dict, measure: str = "average_cosine") -> go.Figure:
    """One measure at every site over training: one line a site."""
    figure = go.Figure(layout=layout())
    names = [entry["site"] for entry in document["scan"][-1]["sites"]] if document.get("scan") else []
    for (light, _), name in zip(palette.depth_colours(len(names)), names, strict=True):
        values = [
            (moment["step"], entry[measure])
            for moment in document["scan"]
            for entry in moment["sites"]
            if entry["site"] == name
        ]
        figure.add_scatter(
            x=[x for x, _ in values],
            y=[y for _, y in values],
            name=literal(name),
            mode="lines+markers",
            line={"color": light, "dash": "dot" if name == "embedding_table" else "solid"},
        )
    figure.update_xaxes(title_text="step")
    figure.update_yaxes(title_text=measure.replace("_", " "))
    return figure


def train_table(document: dict) -> RenderableType:
    """A rich renderable: what was trained, what came of it, the geometry of every site at the end."""
    summary = Table(show_header=False, box=None)
    for name, value in _summary(document):
        summary.add_row(name, value)
    if not document.get("scan"):
        return summary
    sites = Table("site", "average cosine", "effective rank", title="geometry at the end", title_justify="left")
    for entry in document["scan"][-1]["sites"]:
        sites.add_row(entry["site"], _number(entry["average_cosine"]), _number(entry["effective_rank"], 1))
    return Group(summary, sites)


def train_page(document: dict, arrays: dict | None = None) -> str:
    """One self-contained HTML page: summary, learning curve, geometry over training."""
    figures = {"curve": train_plot(document)}
    if document.get("scan"):
        figures["cosine"] = geometry_plot(document)
        figures["rank"] = geometry_plot(document, "effective_rank")
    title = f"Training: {document['recipe']['name']}, {document['recipe']['objective']['name']}"
    return render(
        "train.html.j2",
        title=title,
        figures=figures,
        depth=len(document["scan"][-1]["sites"]) if document.get("scan") else 0,
        rows=_summary(document),
        sites=document["scan"][-1]["sites"] if document.get("scan") else [],
        number=_number,
        names=list(figures),
    )


def _summary(document: dict) -> list[tuple[str, str]]:
    rows = [
        ("recipe", f"{document['recipe']['name']}, {document['recipe']['size']}"),
        ("objective", document["recipe"]["objective"]["name"]),
        ("parameters", f"{document['parameters']:,}"),
        ("steps", f"{document['steps']:,}"),
        ("tokens", f"{document['tokens']:,}"),
        ("loss", f"{_number(document['loss'])} nats"),
        ("loss without its floor", f"{_number(document['floor_corrected_loss'])} nats"),
    ]
    if document["recipe"]["objective"].get("regulariser"):
        rows.insert(2, ("regulariser", document["recipe"]["objective"]["regulariser"]))
        rows.append(("penalty at the end", f"{_number(document['curve'][-1].get('penalty'))} nats"))
    for name, found in document["heldout"].items():
        text = f"{_number(found['nats_per_token'])} nats a token, {_number(found['bits_per_byte'])} bits a byte"
        rows.append((f"held out ({name})", text))
    return rows


def _number(value: float | None, digits: int = 3) -> str:
    return "–" if value is None else f"{value:.{digits}f}"
