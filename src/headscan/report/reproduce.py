"""Page, table and plot of the ledger: claims of the literature and what came of them."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from typing import Any

import numpy as np
import plotly.graph_objects as go
from rich import box
from rich.console import RenderableType
from rich.table import Table

from headscan.errors import BadInput
from headscan.report import page, palette
from headscan.report.plots import layout
from headscan.report.scan import flat
from headscan.report.terminal import clean
from headscan.report.words import literal, number

__all__ = ["reproduce_page", "reproduce_plot", "reproduce_table"]

STYLES = {"reproduced": "green", "artefact": "yellow", "not reproduced": "red", "needs a larger model": "dim"}
"""Every verdict and its colour in the terminal."""

SIGNS = {"reproduced": "●", "artefact": "◐", "not reproduced": "○", "needs a larger model": "↗"}
"""A sign a verdict, so that no verdict is told by colour or words alone."""

COMMAND = " The original: "
"""What parts the reason from the command that runs the experiment on the source's own model."""


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
    """How many claims of each source have which verdict."""
    figure = go.Figure(layout=layout())
    sources = list(dict.fromkeys(publication(row["source"]) for row in document["claims"]))
    counts = Counter((publication(row["source"]), row["outcome"]) for row in document["claims"])
    for index, outcome in enumerate(STYLES):
        heights = [counts[source, outcome] for source in sources]
        if any(heights):
            figure.add_bar(
                y=[wrapped(source) for source in sources], x=heights, orientation="h", name=f"{SIGNS[outcome]} {outcome}",
                marker={"color": palette.MODELS[(2, 4, 1, 0)[index]][0]},
                text=[height or "" for height in heights], hovertemplate="%{x} " + outcome + "<extra></extra>",
            )  # fmt: skip
    figure.update_layout(barmode="stack", legend={"traceorder": "normal"})
    figure.update_xaxes(title_text="claims", showgrid=True)
    figure.update_yaxes(showgrid=False, autorange="reversed")
    return figure


def reproduce_page(document: dict, arrays: dict[str, np.ndarray]) -> str:
    """The self-contained page of the ledger: verdicts counted, then every claim under its source."""
    if document.get("kind") != "reproduce" or not document.get("claims"):
        raise BadInput("The result is no ledger: it has no claims.")
    counts = Counter(row["outcome"] for row in document["claims"])
    sources: dict[str, list[dict[str, Any]]] = {}
    for row in document["claims"]:
        sources.setdefault(publication(row["source"]), []).append(entry(row))
    protocol = document.get("protocol", {})
    return page.render(
        "reproduce.html.j2", title="headscan reproduce", figures={"verdicts": reproduce_plot(document)}, document=document,
        sources=sources, counts=[(outcome, slug(outcome), SIGNS[outcome], counts[outcome]) for outcome in STYLES],
        command=protocol.get("command"), styles=("reproduce.css",),
        facts={
            "run": flat({k: v for k, v in protocol.items() if k not in ("versions", "command")}),
            "versions": flat(protocol.get("versions") or {}),
        },
    )  # fmt: skip


def entry(row: dict[str, Any]) -> dict[str, Any]:
    """One claim as the template prints it: the command parted from the reason, what was measured as words."""
    why, _, command = row["why"].partition(COMMAND)
    return {
        "number": row["number"], "statement": row["statement"], "outcome": row["outcome"], "slug": slug(row["outcome"]),
        "sign": SIGNS.get(row["outcome"], ""), "why": why, "command": command, "seconds": number(row.get("seconds")),
        "measured": [(name.replace("_", " "), value(found)) for name, found in (row.get("measured") or {}).items()],
    }  # fmt: skip


def value(found: Any) -> str:
    """A measured value in words: numbers short, lists and tables spelled out."""
    if isinstance(found, dict):
        return ", ".join(f"{name}: {value(item)}" for name, item in found.items())
    if isinstance(found, (list, tuple)):
        return ", ".join(value(item) for item in found)
    if isinstance(found, bool):
        return "yes" if found else "no"
    if isinstance(found, str):
        return found
    return number(found)


def publication(source: str) -> str:
    """The source without the place in it.

    >>> publication("Zhao 2024, arXiv:2408.15417, Sec. 5")
    'Zhao 2024, arXiv:2408.15417'
    """
    return re.sub(r", (Sec|App)\. .*", "", source)


def slug(outcome: str) -> str:
    """A verdict as a CSS class."""
    return outcome.replace(" ", "-")


def wrapped(source: str, width: int = 34) -> str:
    """A source's name over as many short lines as an axis label can take."""
    return "<br>".join(literal(line) for line in textwrap.wrap(source, width))
