"""Plotly figures in the look that all pages share, in the light palette; a page swaps the colours
for the dark one.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import plotly.graph_objects as go

from headscan.report.kit import palette
from headscan.report.kit.words import literal, value_of

SANS = "Helvetica Neue, Helvetica, Arial, Liberation Sans, sans-serif"
POINTS = 160  # of a line: more than a screen can show


def empty(x: str = "", y: str = "") -> go.Figure:
    """A figure with titles of its axes and nothing on it yet, in the look of all: hairlines, no
    box, a legend above.
    """
    muted = palette.ROLES["muted"][0]
    hairline = palette.ROLES["hairline"][0]
    axis = {
        "color": muted,
        "gridcolor": hairline,
        "linecolor": muted,
        "zeroline": False,
        "ticks": "outside",
        "ticklen": 4,
        "tickcolor": muted,
        "automargin": True,
        "fixedrange": True,
        "spikethickness": 1,
        "spikecolor": muted,
    }
    across, up = ({"standoff": 8, "font": {"size": 12}, "text": words} for words in (x, y))
    # Said at once, as plain data: to build a layout and to change it afterwards takes plotly three
    # times as long.
    return go.Figure(
        layout={
            "template": go.layout.Template(),
            "font": {"family": SANS, "size": 12, "color": palette.ROLES["ink"][0]},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "margin": {"l": 52, "r": 12, "t": 8, "b": 44},
            "xaxis": axis | {"showgrid": False, "title": across},
            "yaxis": axis | {"showline": False, "ticks": "", "title": up},
            "legend": {
                "orientation": "h",
                "x": 0,
                "xanchor": "left",
                "y": 1.02,
                "yanchor": "bottom",
                "font": {"size": 12},
            },
            "hovermode": "closest",
            "dragmode": False,
            "hoverlabel": {
                "bgcolor": palette.ROLES["paper"][0],
                "bordercolor": muted,
                "font": {"family": SANS, "size": 12, "color": palette.ROLES["ink"][0]},
                "namelength": -1,
            },
        }
    )


def lines(
    series: Mapping[
        str,
        tuple[Sequence[Any], Sequence[Any]] | tuple[Sequence[Any], Sequence[Any], Sequence[Any]],
    ],
    x: str = "",
    y: str = "",
    *,
    markers: bool = True,
    by_depth: bool = False,
    zero: bool = False,
    log: str = "",
) -> go.Figure:
    """One line a series, told apart by colour and dash: name -> (its x, its y[, its intervals]).

    Texts on the x axis are categories, values that are not finite leave gaps, intervals are error
    bars. `by_depth` colours from light to dark; `zero` begins the y axis at 0; `log` names the
    logarithmic axes.

    >>> lines({"loss": ([1, 2], [3.0, float("nan")])}).data[0].y
    (3.0, None)
    """
    figure = empty(x, y)
    depths = palette.depth_colours(len(series))
    for index, (name, (across, up, *intervals)) in enumerate(series.items()):
        values = [value_of(value) for value in up]
        figure.add_scatter(
            x=[literal(value) if isinstance(value, str) else value for value in across],
            y=values,
            name=literal(name),
            mode="lines+markers" if markers else "lines",
            line={"color": depths[index][0]} if by_depth else palette.model_line(index),
            error_y=reach(values, intervals[0]) if intervals else None,
        )
    if any(isinstance(value, str) for across, *_ in series.values() for value in across):
        figure.update_xaxes(type="category")
    if zero:
        figure.update_yaxes(rangemode="tozero")
    for name in log:
        figure.update_layout({f"{name}axis": {"type": "log", "dtick": 1}})
    return figure.update_layout(showlegend=len(series) > 1, hovermode="x unified")


def reach(values: Sequence[float | None], intervals: Sequence[Any]) -> go.scatter.ErrorY | None:
    """Error bars from values to the ends of their intervals; None where none has one."""
    ends = [
        (b[1] - v, v - b[0]) if b and v is not None else (0, 0)
        for v, b in zip(values, intervals, strict=True)
    ]
    if not any(any(pair) for pair in ends):
        return None
    above, below = zip(*ends, strict=True)
    return go.scatter.ErrorY(
        type="data", symmetric=False, array=above, arrayminus=below, thickness=1, width=2
    )


def heat(
    values: Sequence[Sequence[Any]],
    columns: Sequence[object],
    rows: Sequence[object],
    *,
    hover: str = "",
    low: float | None = None,
    high: float | None = None,
    scale: Sequence[str] = tuple(palette.FREQUENCY[0]),
) -> go.Figure:
    """A map of values [rows, columns], the first row on top; names are literal, and equal ones stay
    apart.
    """
    figure = empty()
    figure.add_heatmap(
        z=[[value_of(value) for value in row] for row in values],
        x=_apart(columns),
        y=_apart(rows),
        zmin=low,
        zmax=high,
        colorscale=[[k / (len(scale) - 1), colour] for k, colour in enumerate(scale)],
        colorbar={"thickness": 10, "outlinewidth": 0},
        hovertemplate=hover or "%{y}, %{x}: %{z:.3f}<extra></extra>",
    )
    return figure.update_yaxes(autorange="reversed", type="category").update_xaxes(type="category")


def _apart(names: Sequence[object]) -> list[str]:
    """Names as plotly shows them; where two are equal, invisible marks keep their places apart."""
    marks: defaultdict[str, count[int]] = defaultdict(count)
    return [shown + "\u200b" * next(marks[shown]) for shown in map(literal, names)]


def bars(
    names: Sequence[str],
    values: Sequence[float] | Mapping[str, Sequence[float | None]],
    x: str = "value",
    most: float | None = None,
) -> go.Figure:
    """Horizontal bars, the first on top: one a name, or one a name and kind where `values` maps
    kinds to values.
    """
    figure = empty(x)
    kinds = values if isinstance(values, Mapping) else {"": values}
    for index, (kind, lengths) in enumerate(kinds.items()):
        figure.add_bar(
            y=_apart(names),
            x=list(lengths),
            name=kind or None,
            orientation="h",
            showlegend=len(kinds) > 1,
            marker={"color": palette.model_colour(index)},
        )
    figure.update_yaxes(autorange="reversed", showgrid=False)
    return figure.update_xaxes(showgrid=True, range=None if most is None else [0, most])


def mark_level(figure: go.Figure, value: float, words: str, *, log: bool = True) -> go.Figure:
    """Draws a dotted level with words over it, on a logarithmic axis or (`log=False`) a linear one."""
    muted = palette.ROLES["muted"][0]
    figure.add_hline(y=value, line={"dash": "dot", "color": muted, "width": 1})
    figure.add_annotation(
        x=1,
        xref="paper",
        xanchor="right",
        y=math.log10(value) if log else value,
        yanchor="bottom",
        showarrow=False,
        text=words,
        font={"color": muted},
    )
    return figure


def thin(length: int, points: int = POINTS) -> list[int]:
    """At most about `points` of the indices 0 ... length − 1, evenly spread on a log axis, both
    ends among them.

    >>> thin(3)
    [0, 1, 2]
    >>> len(thin(4096)) <= 160, thin(4096)[-1]
    (True, 4095)
    """
    if length <= points:
        return list(range(length))
    return sorted({min(length - 1, round(length ** (k / (points - 1))) - 1) for k in range(points)})
