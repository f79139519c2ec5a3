"""Page and table of the ledger."""

from __future__ import annotations

from collections import Counter

import numpy as np
import plotly.graph_objects as go
from rich import box
from rich.console import RenderableType
from rich.table import Table

from headscan.errors import BadInput
from headscan.report import page
from headscan.report.terminal import clean

__all__ = ["reproduce_page", "reproduce_plot", "reproduce_table"]

STYLES = {"reproduced": "green", "artefact": "yellow", "not reproduced": "red", "needs a larger model": "dim"}


def reproduce_table(document: dict) -> RenderableType:
    """One row a claim."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("claim", justify="right")
    for name in ("verdict", "statement", "why"):
        table.add_column(name, overflow="fold")
    for row in document["claims"]:
        style = STYLES.get(row["outcome"], "")
        table.add_row(str(row["number"]), f"[{style}]{row['outcome']}[/]", clean(row["statement"]), clean(row["why"]))
    return table


def reproduce_plot(document: dict, arrays: dict[str, np.ndarray] | None = None) -> go.Figure:
    """How many claims have which verdict."""
    counts = Counter(row["outcome"] for row in document["claims"])
    figure = go.Figure(go.Bar(x=list(counts.values()), y=list(counts), orientation="h"))
    figure.update_layout(margin={"l": 150, "r": 10, "t": 10, "b": 40})
    figure.update_xaxes(title="claims")
    return figure


def reproduce_page(document: dict, arrays: dict[str, np.ndarray]) -> str:
    """The self-contained page of the ledger."""
    if document.get("kind") != "reproduce" or not document.get("claims"):
        raise BadInput("The result is no ledger: it has no claims.")
    return page.render(
        "reproduce.html.j2",
        title="headscan reproduce",
        figures={"verdicts": reproduce_plot(document)},
        document=document,
    )
