"""Pages and tables of inversions and privacy reports."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headscan.errors import BadInput
from headscan.report import page
from headscan.report.terminal import clean

__all__ = ["invert_page", "invert_plot", "invert_table", "privacy_page", "privacy_plot", "privacy_table"]

GOOD = ("recovered and unique", "recovered, not unique")


def invert_table(document: dict) -> RenderableType:
    """A rich renderable: every prompt token by token, right ones plain, wrong ones marked."""
    parts: list[RenderableType] = []
    for prompt in document["prompts"][:20]:
        line = Text()
        for token, found, one in zip(prompt["tokens"], prompt["recovered_strings"], prompt["recovered"], strict=True):
            line.append(clean(found), style="green" if token == one else "bold red")
            line.append(" ")
        parts.append(line)
    summary = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_header=False)
    for name, value in _facts(document):
        summary.add_row(name, clean(str(value)))
    return Group(*parts, summary)


def _facts(document: dict) -> list[tuple[str, Any]]:
    prompts = document["prompts"]
    tokens = sum(len(prompt["tokens"]) for prompt in prompts)
    worst = max(prompt["certificate"]["residual"] for prompt in prompts)
    margins = [prompt["certificate"]["margin"] for prompt in prompts if prompt["certificate"]["margin"] is not None]
    return [
        ("slice", document["slice_text"]),
        ("method", f"{document['method']}, given {document['given']}"),
        ("token accuracy", f"{document['token_accuracy']:.1%} of {tokens} tokens"),
        ("verdict", document["verdict"]),
        ("certified", prompts[0]["certified"] if len(prompts) == 1 else "see each prompt"),
        ("largest residual", f"{worst:.1e}"),
        ("smallest margin", f"{min(margins):.1e}" if margins else "-"),
        ("candidates a token", f"{sum(prompt['evaluations'] for prompt in prompts) / tokens:.1f}"),
    ]


def invert_plot(document: dict, arrays: dict[str, np.ndarray] | None = None) -> go.Figure:
    """Residual of the tokens found and margin to the second best, by position; logarithmic."""
    figure = go.Figure()
    found = document["prompts"][0]
    certificate = found["certificate"]
    labels = [f"{place}: {text}" for place, text in enumerate(found["recovered_strings"])]
    for name, values in (("residual", certificate["residuals"]), ("second best", certificate["margins"])):
        if values:
            shown = [max(value, 1e-9) if value is not None else None for value in values]
            figure.add_scatter(x=labels, y=shown, name=name, mode="markers")
    figure.add_hline(y=certificate["tolerance"], line_dash="dot", annotation_text="tolerance")
    figure.update_yaxes(type="log", title="relative distance of the output", exponentformat="power")
    figure.update_layout(margin={"l": 60, "r": 10, "t": 10, "b": 40})
    return figure


def invert_page(document: dict, arrays: dict[str, np.ndarray]) -> str:
    """The self-contained page of an inversion."""
    if document.get("kind") != "invert" or not document.get("prompts"):
        raise BadInput("The result is no inversion: it has no prompts.")
    return page.render(
        "invert.html.j2", title=f"headscan invert: {document['models'][0]['name']}",
        figures={"residuals": invert_plot(document)}, document=document, facts=_facts(document), good=GOOD,
    )  # fmt: skip


def privacy_table(document: dict) -> RenderableType:
    """One row a site and kind of damage."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("site", "damage", "method"):
        table.add_column(name)
    for name in ("tokens\nrecovered", "passes\na token", "ms\na token"):
        table.add_column(name, justify="right")
    for row in document["rows"]:
        table.add_row(
            clean(row["site"]), row["damage"], row["method"], f"{row['token_accuracy']:.1%}",
            f"{row['passes_per_token']:.0f}", f"{1000 * row['seconds_per_token']:.1f}",
        )  # fmt: skip
    return table


def privacy_plot(document: dict, arrays: dict[str, np.ndarray] | None = None) -> go.Figure:
    """Share of tokens recovered by site, a line for each kind of damage."""
    figure = go.Figure()
    kinds = dict.fromkeys((row["damage"], row["method"]) for row in document["rows"])
    for damage, method in kinds:
        rows = [row for row in document["rows"] if (row["damage"], row["method"]) == (damage, method)]
        figure.add_scatter(
            x=[row["site"] for row in rows], y=[row["token_accuracy"] for row in rows], mode="lines+markers",
            name=f"{method}, {damage}" if damage != "none" else method,
        )  # fmt: skip
    figure.update_yaxes(range=[-0.02, 1.02], title="share of tokens recovered")
    figure.update_layout(margin={"l": 60, "r": 10, "t": 10, "b": 40})
    return figure


def privacy_page(document: dict, arrays: dict[str, np.ndarray]) -> str:
    """The self-contained page of a privacy report."""
    if document.get("kind") != "privacy" or not document.get("rows"):
        raise BadInput("The result is no privacy report: it has no rows.")
    return page.render(
        "privacy.html.j2", title=f"headscan privacy: {document['models'][0]['name']}",
        figures={"accuracy": privacy_plot(document)}, document=document,
    )  # fmt: skip
