"""Pages and tables of inversions and privacy reports."""

from __future__ import annotations

import math
from typing import Any

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

__all__ = ["invert_page", "invert_plot", "invert_table", "privacy_page", "privacy_plot", "privacy_table"]

LEAST = 1e-9
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
        *([("certified", _shared_sentence(document))] if _shared_sentence(document) else []),
        ("largest residual", f"{worst:.1e}"),
        ("smallest margin", f"{min(margins):.1e}" if margins else "-"),
        ("candidates a token", f"{sum(prompt['evaluations'] for prompt in prompts) / tokens:.1f}"),
    ]


def invert_plot(document: dict, arrays: dict[str, np.ndarray] | None = None) -> go.Figure:
    """Residual of the tokens found and margin to the second best, by position; logarithmic."""
    figure = go.Figure(layout=layout())
    found = document["prompts"][0]
    certificate = found["certificate"]
    places = list(range(len(found["tokens"])))
    for index, (name, values) in enumerate(
        (("token found", certificate["residuals"]), ("second best", certificate["margins"]))
    ):
        if values:
            # An output that is equal to the last bit has no logarithm; it is drawn at the least that float32 resolves.
            shown = [max(value, LEAST) if value is not None else None for value in values]
            figure.add_scatter(
                x=places, y=shown, name=name, mode="markers", text=[literal(text) for text in found["recovered_strings"]],
                marker={"color": palette.model_colour(index), "symbol": ("circle", "diamond")[index], "size": 8},
                hovertemplate="%{x}: %{text}<br>%{y:.1e}",
            )  # fmt: skip
    figure.add_hline(y=certificate["tolerance"], line={"dash": "dot", "color": palette.ROLES["muted"][0], "width": 1})
    figure.add_annotation(
        x=1, xref="paper", xanchor="right", y=math.log10(certificate["tolerance"]), yanchor="bottom", showarrow=False,
        text="tolerance",
    )  # fmt: skip
    figure.update_xaxes(title_text="position", tickvals=places, ticktext=[str(place) for place in places])
    figure.update_yaxes(type="log", title_text="relative distance", exponentformat="power", dtick=1)
    return figure


def invert_page(document: dict, arrays: dict[str, np.ndarray]) -> str:
    """The self-contained page of an inversion."""
    if document.get("kind") != "invert" or not document.get("prompts"):
        raise BadInput("The result is no inversion: it has no prompts.")
    facts = [fact for fact in _facts(document) if fact[0] != "certified"]  # the page has it beside the prompts
    return page.render(
        "invert.html.j2", title=f"headscan invert: {document['models'][0]['name']}",
        figures={"residuals": invert_plot(document)}, styles=("invert.css",), document=document, facts=facts,
        good=GOOD, shared=_shared_sentence(document),
    )  # fmt: skip


def _shared_sentence(document: dict) -> str | None:
    """What is certified, if that is the same for every prompt."""
    sentences = {" ".join([prompt["certified"], *prompt["notes"]]) for prompt in document["prompts"]}
    return sentences.pop() if len(sentences) == 1 else None


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
    figure = go.Figure(layout=layout())
    for index, (name, rows) in enumerate(_kinds(document).items()):
        figure.add_scatter(
            x=[row["site"] for row in rows], y=[row["token_accuracy"] for row in rows], mode="lines+markers", name=name,
            line={"color": palette.model_colour(index), "dash": palette.DASHES[(index + index // 5) % len(palette.DASHES)]},
        )  # fmt: skip
    figure.update_xaxes(type="category")
    figure.update_yaxes(range=[-0.03, 1.05], title_text="share of tokens recovered", tickformat=".0%")
    return figure


def _kinds(document: dict) -> dict[str, list[dict]]:
    """The rows by method and damage, each in the order of the sites."""
    found: dict[str, list[dict]] = {}
    for row in document["rows"]:
        name = f"{row['method']} search" if row["method"] == "exact" else row["method"]
        found.setdefault(f"{name}, {'clean' if row['damage'] == 'none' else row['damage']}", []).append(row)
    return found


def _privacy_sentence(document: dict) -> str:
    """What the rows come to, in words."""
    clean_rows = [row for row in document["rows"] if row["damage"] == "none"]
    exact = [row["token_accuracy"] for row in clean_rows if row["method"] == "exact"]
    gradient = [row["token_accuracy"] for row in clean_rows if row["method"] == "gradient"]
    hurt = [row for row in document["rows"] if row["damage"] != "none"]
    words = f"From clean states an exact search recovers {_range(exact)} of the tokens, gradients {_range(gradient)}."
    if hurt:
        worst = min(hurt, key=lambda row: row["token_accuracy"])
        words += f" The damage that protects most, {worst['damage']} at {worst['site']}, leaves {worst['token_accuracy']:.0%}."
    return words


def _range(shares: list[float]) -> str:
    low, high = f"{min(shares):.0%}", f"{max(shares):.0%}"
    return high if low == high else f"{low} to {high}"


def privacy_page(document: dict, arrays: dict[str, np.ndarray]) -> str:
    """The self-contained page of a privacy report."""
    if document.get("kind") != "privacy" or not document.get("rows"):
        raise BadInput("The result is no privacy report: it has no rows.")
    return page.render(
        "privacy.html.j2", title=f"headscan privacy: {document['models'][0]['name']}",
        figures={"accuracy": privacy_plot(document)}, styles=("invert.css",), document=document,
        kinds=_kinds(document), sites=list(dict.fromkeys(row["site"] for row in document["rows"])),
        sentence=_privacy_sentence(document),
    )  # fmt: skip
