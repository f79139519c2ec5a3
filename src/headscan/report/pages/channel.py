"""The page of a channel: code book distances, noise, rounding, and the features that searches need."""

from __future__ import annotations

from typing import TYPE_CHECKING

import plotly.graph_objects as go

from headscan.report.kit import Column, Figure, Head, Prose, Section, Table, figures, page, palette, section
from headscan.report.kit.words import number
from headscan.report.pages.flow import titled

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headscan.flow.result import ChannelPart, ChannelResult

__all__ = ["channel", "codebooks", "decoding", "searching"]

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
    columns: list[Column | str] = [
        "code book",
        Column("nearest, least", "Distance of the two nearest outputs, in mean standard deviations of a feature."),
        Column("nearest, median", "Median distance of an output to its nearest other, in the same unit."),
        Column("round cloud", "About the distance of two tokens in a round cloud of the same spread.", "√(2 w)"),
        Column("directions in use", "Participation ratio of the outputs' covariance."),
        Column("features"),
        Column("shared outputs", "Tokens whose output another token shares to 1e-6."),
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
        columns: list[Column | str] = [
            "noise",
            Column(
                "bits at most", "What these outputs can tell of their token through this noise, all features together.",
                "Σ ½ log₂(1 + σᵢ²/N)",
            ),
            Column(
                "features at least", "With fewer, whichever they are, no decoder finds 95 % of the tokens.",
                "Fano; the largest σᵢ²",
            ),
            Column(
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
        columns: list[Column | str] = [
            "search", Column("features", text=True), Column("fewest that find every token"),
            Column("tried: share found", text=True, where="page"),
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
