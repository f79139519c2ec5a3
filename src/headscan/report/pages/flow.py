"""The page of a flow: a matrix per layer with a slider, and summaries by layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go

from headscan.report.kit import Cell, Column, Figure, Head, Line, Raw, Section, Table, figures, page, palette, section
from headscan.report.kit.words import literal, named
from headscan.run.errors import BadInput

if TYPE_CHECKING:
    from headscan.flow.result import ChannelPart, FlowPart, FlowResult, FlowSummary

__all__ = ["flow", "layers", "matrices"]

COLUMNS = tuple(
    Column(title, sentence, name=name)
    for name, title, sentence in (
        ("leak_own", "leak, own token", "How far an output moves when its own token changes, as a share of its norm."),
        ("leak_of_earlier", "leak of earlier tokens", "The same when a token before it changes."),
        ("leak_of_later", "leak of later tokens", "The same when a token after it changes; 0 under a causal mask."),
        ("recoverable_own", "own token told", "Share of tokens that their own output tells from all others."),
        (
            "recoverable_of_earlier",
            "earlier tokens told",
            "Share of earlier tokens that one output alone tells, others known.",
        ),
        ("recoverable_of_later", "later tokens told", "The same of later tokens."),
        (
            "margin_of_earlier",
            "margin, earlier",
            "Relative distance of the nearest output that another token would give.",
        ),
    )
)
KINDS = {
    "leak": "how far the output moves", "recoverable": "whether the token can be told", "margin": "by what margin",
}  # fmt: skip
SERIES = {
    "leak_of_earlier": "leak of earlier tokens", "recoverable_of_earlier": "earlier tokens told",
    "recoverable_own": "own token told",
}  # fmt: skip


@page("flow")
def flow(result: FlowResult) -> Head:
    """How many tokens of which models."""
    averaged = f", averaged over {result.prompts} prompts" if result.prompts > 1 else ""
    names = "; ".join(dict.fromkeys(titled(part) for part in result.parts))
    return Head(
        ["What tokens know of each other"], f"{result.length} tokens{averaged}, in {names}.",
        plots={"matrix": lambda kind="leak", part=0, site=-1: matrix(result, kind, part, site)},
    )  # fmt: skip


def titled(part: FlowPart | ChannelPart) -> str:
    """A part's model and cut."""
    name = named(part.model)
    return name if part.cut == "whole" else f"{name}, {part.cut}"


@section("flow", 10)
def matrices(result: FlowResult) -> Section:
    """A matrix a part, all turned through the layers by one slider."""
    kinds = {kind: words for kind, words in KINDS.items() if f"{kind}/0" in result.arrays}
    data = [
        {"name": titled(part), "tokens": part.tokens, "sites": [entry.site for entry in part.sites]}
        | {kind: rounded(result.arrays[f"{kind}/{k}"]) for kind in kinds}
        for k, part in enumerate(result.parts)
    ]
    raw = Raw(
        "flow_matrices.html.j2", {"kinds": kinds}, {"kinds": list(kinds), "parts": data}, ("flow.js",), ("flow.css",)
    )
    lead = (
        "Row: the input token that is changed. Column: the output that is looked at. On the diagonal a token meets its own "
        "output."
    )
    return Section("Token by token", lead, [raw], "matrix")


def rounded(values: object) -> list[list[list[float]]]:
    """Matrices short enough to be carried by a page."""
    found = np.asarray(values, dtype=float).tolist()
    return [[[float(f"{value:.4g}") for value in row] for row in one] for one in found]


@section("flow", 20)
def layers(result: FlowResult) -> Section:
    """Means over all pairs, by layer."""
    recovered = result.recoverable is not None
    parts: list[Figure | Table] = [
        Figure(
            "leak", by_site(result, "leak_of_earlier"), "Mean relative movement of an output when an earlier token is "
            "changed, by site", "Leak of earlier tokens.", 320,
        )
    ]  # fmt: skip
    if recovered:
        parts.append(
            Figure(
                "told", by_site(result, "recoverable_of_earlier"), "Share of earlier tokens that can be told from an output "
                "alone, by site", "Share of earlier tokens that one output alone gives away to exact search, every other "
                "token known.", 320,
            )
        )  # fmt: skip
    if len(result.parts) > 1:
        parts.append(
            Figure(
                "compared", compared(result), "Leak and recovery at the deepest site of each model and cut, in the order given",
                "The deepest site of each, in the order given; a series of checkpoints reads from left to right.",
            )
        )  # fmt: skip
    columns = [column for column in COLUMNS if recovered or column.name.startswith("leak")]
    for part in result.parts:
        rows = [Line(entry.site, [with_interval(entry, column.name) for column in columns]) for entry in part.sites]
        parts.append(Table(["site", *columns], rows, title=titled(part)))
    return Section("By layer", "Means over all pairs of an output and a token before it.", parts)


def with_interval(entry: FlowSummary, name: str) -> Cell:
    """A number of a site with its interval over prompts."""
    found = getattr(entry, f"{name}_interval", None)
    return Cell(getattr(entry, name), interval=tuple(found) if found else None)


def by_site(result: FlowResult, key: str) -> go.Figure:
    """One summary at each site, a line a part."""
    figure = figures.lines(
        {
            f"{k} {titled(part)}" if len(result.parts) > 1 else titled(part): (
                [entry.site for entry in part.sites],
                [getattr(entry, key) for entry in part.sites],
            )
            for k, part in enumerate(result.parts)
        },
        y=SERIES[key],
    )
    figure.update_yaxes(rangemode="tozero")
    return figure


def compared(result: FlowResult) -> go.Figure:
    """The deepest site of each part, in the order in which models were given: checkpoints read from left to right."""
    names = [f"{k} {titled(part)}" for k, part in enumerate(result.parts)]
    series = {
        label: (names, [getattr(part.sites[-1], key) for part in result.parts])
        for key, label in SERIES.items()
        if getattr(result.parts[0].sites[-1], key) is not None
    }
    figure = figures.lines(series, y="at the deepest site")
    figure.update_yaxes(rangemode="tozero")
    return figure


def matrix(result: FlowResult, kind: str, part: int, site: int) -> go.Figure:
    """One matrix: input token i (rows) against output position j (columns)."""
    if f"{kind}/{part}" not in result.arrays:
        raise BadInput(f"There is no matrix {kind!r} of part {part}; there are: {', '.join(sorted(result.arrays))}.")
    names = [f"{k} {token}" for k, token in enumerate(result.parts[part].tokens)]
    values = np.asarray(result.arrays[f"{kind}/{part}"], dtype=float)[site].tolist()
    figure = figures.heat(values, names, names, scale=palette.DEPTH[0])
    figure.update_xaxes(title_text=literal("output position"))
    figure.update_yaxes(title_text=literal("input token"))
    return figure
