"""The page and table of what a training step's gradient gives away."""

from __future__ import annotations

import math

import numpy as np
import plotly.graph_objects as go
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headscan.errors import BadInput
from headscan.report import page, palette
from headscan.report.plots import layout
from headscan.report.terminal import clean
from headscan.report.words import literal

__all__ = ["gradient_page", "gradient_plot", "gradient_table"]

LEAST = 1e-12


def _facts(document: dict) -> list[tuple[str, str]]:
    batch = document["batch"]
    precision = document["precision"]
    return [
        ("batch", f"{len(batch)} texts of {len(batch[0])} tokens"),
        ("tokens of the batch found", f"{document['recall']:.1%}"),
        ("found tokens that were there", "-" if precision is None else f"{precision:.1%}"),
        ("at this or another position", "-" if precision is None else f"{document['precision_anywhere']:.1%}"),
        ("rank of the gradient", f"{document['rank']} of {document['width']}"),
        ("positions", "recovered" if document["with_positions"] else "not recovered"),
        ("nearest token outside", f"{document['nearest_other']:.1e}" if document["nearest_other"] is not None else "-"),
    ]


def gradient_table(document: dict) -> RenderableType:
    """A rich renderable: the tokens found by position, those that were not in the batch marked."""
    line = Text()
    place = None
    for entry in document["tokens"][:300]:
        if entry["position"] != place:
            place = entry["position"]
            line.append(f"\n{place}: " if len(line) else f"{place}: ", style="dim")
        line.append(clean(entry["string"]), style="green" if entry["in_batch"] else "bold red")
        line.append(" ")
    summary = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_header=False)
    for name, value in [*_facts(document), ("", document["certified"])]:
        summary.add_row(name, clean(value))
    return Group(line, summary)


def gradient_plot(document: dict, arrays: dict[str, np.ndarray] | None = None) -> go.Figure:
    """Distance of every listed token from the gradient's span, logarithmic; the nearest token left out is a line."""
    figure = go.Figure(layout=layout())
    for index, (there, name) in enumerate(((True, "in the batch there"), (False, "not in the batch, or elsewhere"))):
        rows = [(number, entry) for number, entry in enumerate(document["tokens"]) if entry["in_batch"] is there]
        if rows:
            figure.add_scatter(
                x=[number for number, _ in rows], y=[max(entry["distance"], LEAST) for _, entry in rows],
                text=[literal(entry["string"]) for _, entry in rows], name=name, mode="markers",
                marker={"color": palette.model_colour(index), "symbol": ("circle", "x")[index], "size": 7},
                hovertemplate="%{text}<br>%{y:.1e}",
            )  # fmt: skip
    if document["nearest_other"]:
        muted = palette.ROLES["muted"][0]
        figure.add_hline(y=document["nearest_other"], line={"dash": "dot", "color": muted, "width": 1})
        figure.add_annotation(
            x=1, xref="paper", xanchor="right", y=math.log10(document["nearest_other"]), yanchor="bottom",
            showarrow=False, text="nearest token left out",
        )  # fmt: skip
    figure.update_yaxes(type="log", title_text="distance from the span", exponentformat="power", dtick=1)
    figure.update_xaxes(title_text="tokens found")
    return figure


def gradient_page(document: dict, arrays: dict[str, np.ndarray]) -> str:
    """The self-contained page of a leaked gradient."""
    if document.get("kind") != "gradient" or not document.get("batch"):
        raise BadInput("The result is no leaked gradient: it has no batch.")
    return page.render(
        "gradient.html.j2", title=f"headscan gradient: {document['models'][0]['name']}",
        figures={"distances": gradient_plot(document)}, styles=("invert.css",), document=document, facts=_facts(document),
    )  # fmt: skip
