"""Tokens that were found again, as lines of text and as dots by distance.

The pages of inversions and of leaked gradients share them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import plotly.graph_objects as go
from rich.text import Text

from headscan.report.kit import Raw, palette
from headscan.report.kit.figures import empty
from headscan.report.kit.words import clean, literal

# An output that is equal to the last bit has no logarithm; it is drawn at the least difference that
# float32 resolves.
LEAST_DISTANCE = 1e-9
MOST_TERMINAL_LINES = 20
MOST_TERMINAL_TOKENS = 300  # a line


class RecoveredToken(NamedTuple):
    """A token as it was found; `true` is shown behind a wrong one, `title` on pointing at it."""

    found: str
    right: bool
    true: str = ""
    title: str = ""


class RecoveredLine(NamedTuple):
    """A line of tokens, with its verdict and a sentence on it."""

    tokens: Sequence[RecoveredToken]
    verdict: str = ""
    sentence: str = ""


def recovered(lines: Sequence[RecoveredLine]) -> Raw:
    """Return the lines for the page, and the first of them for the terminal.

    Right tokens are plain, wrong tokens struck.
    """
    text = Text()
    for line in lines[:MOST_TERMINAL_LINES]:
        for token in line.tokens[:MOST_TERMINAL_TOKENS]:
            text.append(clean(token.found), style="green" if token.right else "bold red")
            text.append(" ")
        text.append("\n")
    return Raw("recovered.html.j2", context={"lines": lines}, styles=("invert.css",), terminal=text)


class Dots(NamedTuple):
    """Tokens as dots: their x, their distances (None: no dot), their texts and the look."""

    name: str
    x: Sequence[int]
    distances: Sequence[float | None]
    tokens: Sequence[str]
    symbol: str
    size: int


def log_distances(x_title: str, y_title: str) -> go.Figure:
    """Return an empty figure with a logarithmic axis of distances."""
    figure = empty(x_title, y_title)
    return figure.update_yaxes(type="log", tickformat="~g", dtick=1)


def add_dots(figure: go.Figure, dots: Dots, index: int, hover: str) -> None:
    """Add dots in the index-th colour; nothing where no distance is known."""
    if all(distance is None for distance in dots.distances):
        return
    heights = [
        None if distance is None else max(distance, LEAST_DISTANCE) for distance in dots.distances
    ]
    marker = {"color": palette.model_colour(index), "symbol": dots.symbol, "size": dots.size}
    figure.add_scatter(
        x=list(dots.x),
        y=heights,
        name=dots.name,
        mode="markers",
        text=[literal(token) for token in dots.tokens],
        hovertemplate=hover,
        marker=marker,
    )
