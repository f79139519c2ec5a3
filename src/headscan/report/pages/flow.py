"""The page of a flow: a matrix per layer with a slider, and summaries by layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go

from headscan.report.kit import (
    Cell,
    Figure,
    Head,
    Line,
    Prose,
    Raw,
    Section,
    Table,
    Term,
    figures,
    page,
    palette,
    section,
)
from headscan.report.kit.words import literal, named, number
from headscan.run.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headscan.flow.result import ChannelPart, ChannelResult, FlowPart, FlowResult, FlowSummary


COLUMNS = tuple(
    Term(title, sentence, name=name)
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
        "Row: the input token that is changed. Term: the output that is looked at. On the diagonal a token meets its own "
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


# ---- The page of a channel: code book distances, noise, rounding, and the features that searches need.

SEARCHES = {
    "exact": "exact search", "adam": "Adam from small embeddings", "zeros": "Adam from zeros", "noise": "Adam from noise",
}  # fmt: skip
"""Names of searches for people."""


@page("channel")
def channel(result: ChannelResult) -> Head:
    """Which outputs are looked at."""
    seen = "; ".join(f"{titled(part)} at {part.site}" for part in result.parts)
    return Head(["How narrow and noisy an output may be"], f"A token's output as a message, in {seen}.")


@section("channel", 10)
def codebooks(result: ChannelResult) -> Section:
    """How far apart the outputs of all tokens lie."""
    columns: list[Term | str] = [
        "code book",
        Term("nearest, least", "Distance of the two nearest outputs, in mean standard deviations of a feature."),
        Term("nearest, median", "Median distance of an output to its nearest other, in the same unit."),
        Term("round cloud", "About the distance of two tokens in a round cloud of the same spread.", "√(2 w)"),
        Term("directions in use", "Participation ratio of the outputs' covariance."),
        Term("features"),
        Term("shared outputs", "Tokens whose output another token shares to 1e-6."),
    ]
    rows = []
    for part in result.parts:
        d = part.distances
        cells = (d.minimum, d.median, d.expected, d.participation_ratio, part.width, d.duplicates)
        rows.append((f"{titled(part)} at {part.site}", *cells))
    caption = "In feature spreads: how far each token's output lies from its nearest other."
    return Section("Code books", "The outputs of all tokens at one place.", [Table(columns, rows, caption=caption)])


@section("channel", 20)
def decoding(result: ChannelResult) -> Section:
    """Noise and rounding, with maximum-likelihood decoding."""
    parts: list[Figure | Table | Prose] = []
    for index, part in enumerate(result.parts):
        parts += [Prose(titled(part), heading=True)] if len(result.parts) > 1 else []
        parts.append(
            Figure(
                f"noise-{index}", noise(part), "Tokens decoded rightly by the number of features, one line a noise level",
                "Noise, with maximum-likelihood decoding: the nearest code word.", 320,
            )
        )  # fmt: skip
        parts.append(
            Figure(
                f"rounding-{index}", rounding(part), "Tokens decoded rightly by the bits that are sent, one line a precision",
                "Rounding: features of so many bits. Left of the dotted line fewer bits are sent than a token has.", 320,
            )
        )  # fmt: skip
        columns: list[Term | str] = [
            "noise",
            Term(
                "bits at most", "What these outputs can tell of their token through this noise, all features together.",
                "Σ ½ log₂(1 + σᵢ²/N)",
            ),
            Term(
                "features at least", "With fewer, whichever they are, no decoder finds 95 % of the tokens.",
                "Fano; the largest σᵢ²",
            ),
            Term(
                "at least, power shared anew", "The same for any outputs of the same total power: water-filling.",
                "(w/2) log₂(1 + Σσᵢ²/(w N))",
            ),
            "fewest tried that decode 95 %",
        ]  # fmt: skip
        rows = [
            (
                f"{row.noise:g} spreads",
                row.bits,
                fewest(row.width),
                fewest(row.reallocated_width),
                enough(part, row.noise),
            )
            for row in part.bounds
        ]
        parts.append(Table(columns, rows))
    lead = (
        "A token's output as a message: how many features, how much noise. Dotted: with fewer features, whichever they are, "
        "no decoder finds 95 % of the tokens."
    )
    return Section("Noise and rounding", lead, parts)


def fewest(width: int | None) -> int | str:
    """A bound of the features, in words where not even all do."""
    return "all are too few" if width is None else width


def enough(part: ChannelPart, level: float) -> int | str:
    """The fewest features tried that decode 95 % of the tokens at a level of noise."""
    widths = [row.width for row in part.noise if row.noise == level and row.accuracy >= 0.95]
    return min(widths) if widths else "none"


def curves(
    x: str, y: str, lines: Mapping[str, Sequence[tuple[float, float]]], marks: Sequence[tuple[float, int]] = ()
) -> go.Figure:
    """Shares of tokens over a logarithmic axis, a line a name; dotted marks at values of x, in the colour of a line."""
    series = {name: ([a for a, _ in points], [b for _, b in points]) for name, points in lines.items()}
    figure = figures.lines(series, x, y)
    for place, index in marks:
        line = {"color": palette.model_colour(index), "width": 1, "dash": "dot"}
        figure.add_scatter(x=[place, place], y=[0, 1], mode="lines", showlegend=False, hoverinfo="skip", line=line)
    figure.update_xaxes(type="log", dtick=1)
    figure.update_yaxes(range=[0, 1.03])
    return figure


def noise(part: ChannelPart) -> go.Figure:
    """Token accuracy by the number of features, one line a noise level, a tick where the bound lies."""
    levels = {f"noise {row.noise:g} × spread": row for row in sorted(part.noise, key=lambda row: row.noise)}
    lines = {
        name: [(row.width, row.accuracy) for row in part.noise if row.noise == level.noise]
        for name, level in levels.items()
    }
    fewest = {row.noise: row.width for row in part.bounds}
    marks = [
        (float(width), index)
        for index, level in enumerate(levels.values())
        if (width := fewest.get(level.noise)) is not None
    ]
    return curves("features", "tokens decoded rightly", lines, marks)


def rounding(part: ChannelPart) -> go.Figure:
    """Token accuracy by the bits that are sent (features times bits of each), one line a precision."""
    lines = {
        f"{bits} bit{'s' if bits > 1 else ''} a feature": [
            (r.sent, r.accuracy) for r in part.quantised if r.bits == bits
        ]
        for bits in sorted({row.bits for row in part.quantised})
    }
    return curves("bits sent", "tokens decoded rightly", lines, [(part.quantised[0].needed, 0)])


@section("channel", 30)
def searching(result: ChannelResult) -> Section | None:
    """How many features each search needs."""
    parts: list[Figure | Table | Prose] = []
    for index, part in enumerate(result.parts):
        if not part.thresholds:
            continue
        parts += [Prose(titled(part), heading=True)] if len(result.parts) > 1 else []
        parts.append(
            Figure(
                f"widths-{index}", widths(part), "Tokens found from so many features without noise, by search and kind of subset",
                "Where curves of one model differ, the difference is the search's and its start's, not the model's.",
            )
        )  # fmt: skip
        columns: list[Term | str] = [
            "search", Term("features"), Term("fewest that find every token"),
            Term("tried: share found", where="page"),
        ]  # fmt: skip
        rows = [
            (
                SEARCHES.get(row.search, row.search),
                "at random" if row.subset == "random" else f"from feature {row.first} on",
                row.width if row.width is not None else "not even all",
                " · ".join(f"{one.width}: {number(one.accuracy)}" for one in row.tried),
            )
            for row in part.thresholds
        ]
        parts.append(Table(columns, rows))
    lead = "How many features of the output a search needs to find every token, without noise."
    return Section("Width", lead, parts) if parts else None


def widths(part: ChannelPart) -> go.Figure:
    """Share of tokens found from w features without noise, one line a search and kind of subset."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for row in part.widths:
        name = f"{SEARCHES.get(row.search, row.search)}, {row.subset} features"
        lines.setdefault(name, []).append((row.width, row.accuracy))
    return curves("features", "tokens found", lines)
