"""Plotly figures in the look that all pages share.

They are made in the light palette; a page swaps the colours for the dark one.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from headscan.report.kit import palette
from headscan.report.kit.words import literal, value_of

SANS = "Helvetica Neue, Helvetica, Arial, Liberation Sans, sans-serif"
MOST_POINTS = 160  # of a line: more than a screen can show
# Decades of a logarithmic axis: below the first it has even steps, up to the second 1, 2 and 5.
FEW_DECADES = 0.9
SEVERAL_DECADES = 2.2
MOST_TICKS = 6
ZERO_WIDTH_SPACE = "\u200b"

PlainSeries = tuple[Sequence[Any], Sequence[Any]]
SeriesWithIntervals = tuple[Sequence[Any], Sequence[Any], Sequence[Any]]


def empty(x: str = "", y: str = "") -> go.Figure:
    """Return a figure with titles of its axes and nothing on it yet.

    The look is that of all figures: hairlines, no box, a legend above.
    """
    # The layout is passed as plain data: building a layout and changing it afterwards takes plotly
    # three times as long.
    muted = palette.ROLES["muted"][0]
    font = {"family": SANS, "size": 12, "color": palette.ROLES["ink"][0]}
    layout = {
        "template": go.layout.Template(),
        "font": font,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 52, "r": 12, "t": 8, "b": 44},
        "xaxis": _x_axis(x),
        "yaxis": _y_axis(y),
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
            "font": font,
            "namelength": -1,
        },
    }
    return go.Figure(layout=layout)


def stacked(x: str, titles: Sequence[str], gap: float = 0.08) -> go.Figure:
    """Return a figure of panels one above the other, with one x axis and a title for each y axis.

    Traces of the k-th panel have `yaxis="yK"` (of the first "y").
    """
    figure = empty(x)
    height = (1 - gap * (len(titles) - 1)) / len(titles)
    axes = {}
    for panel, title in enumerate(titles):
        top = 1 - panel * (height + gap)
        axis = _y_axis(title) | {"domain": [max(0.0, top - height), top]}
        axes[f"yaxis{panel + 1}" if panel else "yaxis"] = axis
    lowest = f"y{len(titles)}" if len(titles) > 1 else "y"
    return figure.update_layout(axes | {"xaxis": _x_axis(x) | {"anchor": lowest}})


def _x_axis(title: str) -> dict[str, object]:
    return _axis() | {"showgrid": False, "title": _axis_title(title)}


def _y_axis(title: str) -> dict[str, object]:
    return _axis() | {"showline": False, "ticks": "", "title": _axis_title(title)}


def _axis() -> dict[str, object]:
    """Return the look that all axes share."""
    muted = palette.ROLES["muted"][0]
    return {
        "color": muted,
        "gridcolor": palette.ROLES["hairline"][0],
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


def _axis_title(text: str) -> dict[str, object]:
    return {"standoff": 8, "font": {"size": 12}, "text": text}


def set_log(figure: go.Figure, *axes: str) -> go.Figure:
    """Make axes ("x", "y", "y2") logarithmic, with ticks that fit the values drawn so far."""
    for axis in axes:
        values = [
            float(value)
            for trace in figure.data
            if (trace[f"{axis[0]}axis"] or axis[0]) == axis
            for value in trace[axis[0]] or ()
            if value_of(value) is not None
        ]
        layout = {"type": "log"} | log_ticks([value for value in values if value > 0])
        figure.update_layout({f"{axis[0]}axis{axis[1:]}": layout})
    return figure


def log_ticks(values: Sequence[float]) -> dict[str, object]:
    """Return the ticks of a logarithmic axis over positive values.

    Ticks are at powers of ten; over few decades at 1, 2 and 5 of each, or in even steps.

    >>> log_ticks([10, 60])["dtick"], log_ticks([10, 900])["dtick"], log_ticks([1e-5, 1])["dtick"]
    ('L10', 'D2', 1)
    """
    if not values:
        return {"dtick": 1}
    low = min(values)
    high = max(values)
    decades = math.log10(high / low)
    style = "~g" if low < 1e-4 else ",~r"
    if decades > SEVERAL_DECADES:
        return {"dtick": math.ceil(decades / MOST_TICKS), "tickformat": style}
    if decades > FEW_DECADES:
        return {"dtick": "D2", "tickformat": style}
    return {"dtick": f"L{_round_step((high - low) / 4 or low):g}", "tickformat": style}


def round_ticks(low: float, high: float) -> list[float]:
    """Return about five round numbers from `low` to `high`.

    >>> round_ticks(0.35, 0.55)
    [0.35, 0.4, 0.45, 0.5, 0.55]
    """
    step = _round_step((high - low) / 4)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(step * index, 12) for index in range(first, last + 1)]


def _round_step(size: float) -> float:
    """Return the largest of 1, 2 and 5 times a power of ten that is at most the size."""
    power = 10.0 ** math.floor(math.log10(size))
    factor = max(factor for factor in (1, 2, 5) if factor * power <= size * (1 + 1e-9))
    return factor * power


def lines(
    series: Mapping[str, PlainSeries | SeriesWithIntervals],
    x: str = "",
    y: str = "",
    *,
    markers: bool = True,
    by_depth: bool = False,
    zero: bool = False,
    log: str = "",
) -> go.Figure:
    """Return one line a series, told apart by colour and dash.

    `series` maps a name to its x, its y and, optionally, its intervals. Texts on the x axis are
    categories, values that are not finite leave gaps, intervals are error bars. `by_depth` colours
    from light to dark; `zero` begins the y axis at 0; `log` names the logarithmic axes.

    >>> lines({"loss": ([1, 2], [3.0, float("nan")])}).data[0].y
    (3.0, None)
    """
    figure = empty(x, y)
    depth_colours = palette.depth_colours(len(series))
    has_categories = False
    for index, (name, (x_values, y_values, *intervals)) in enumerate(series.items()):
        heights = [value_of(value) for value in y_values]
        figure.add_scatter(
            x=[literal(value) if isinstance(value, str) else value for value in x_values],
            y=heights,
            name=literal(name),
            mode="lines+markers" if markers else "lines",
            line={"color": depth_colours[index][0]} if by_depth else palette.model_line(index),
            error_y=error_bars(heights, intervals[0]) if intervals else None,
        )
        has_categories |= any(isinstance(value, str) for value in x_values)
    if has_categories:
        figure.update_xaxes(type="category")
    if zero:
        figure.update_yaxes(rangemode="tozero")
    set_log(figure, *log)
    return figure.update_layout(showlegend=len(series) > 1, hovermode="x unified")


def error_bars(
    values: Sequence[float | None], intervals: Sequence[Any]
) -> go.scatter.ErrorY | None:
    """Return error bars from values to the ends of their intervals; None where no value has one."""
    above = []
    below = []
    for value, interval in zip(values, intervals, strict=True):
        if interval and value is not None:
            above.append(interval[1] - value)
            below.append(value - interval[0])
        else:
            above.append(0)
            below.append(0)
    if not any(above) and not any(below):
        return None
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
    """Return a map of values [rows, columns], the first row on top.

    Names are literal, and equal names stay apart.
    """
    figure = empty()
    steps = len(scale) - 1
    figure.add_heatmap(
        z=[[value_of(value) for value in row] for row in values],
        x=_kept_apart(columns),
        y=_kept_apart(rows),
        zmin=low,
        zmax=high,
        colorscale=[[step / steps, colour] for step, colour in enumerate(scale)],
        colorbar={"thickness": 10, "outlinewidth": 0},
        hovertemplate=hover or "%{y}, %{x}: %{z:.3f}<extra></extra>",
    )
    return figure.update_yaxes(autorange="reversed", type="category").update_xaxes(type="category")


def _kept_apart(names: Sequence[object]) -> list[str]:
    """Return names as plotly shows them; invisible marks keep equal names apart."""
    repeats: defaultdict[str, int] = defaultdict(int)
    labels = []
    for name in names:
        label = literal(name)
        labels.append(label + ZERO_WIDTH_SPACE * repeats[label])
        repeats[label] += 1
    return labels


def bars(
    names: Sequence[str],
    values: Sequence[float] | Mapping[str, Sequence[float | None]],
    x: str = "value",
    most: float | None = None,
) -> go.Figure:
    """Return horizontal bars, the first on top.

    There is one bar a name, or one a name and kind where `values` maps kinds to values.
    """
    figure = empty(x)
    kinds = values if isinstance(values, Mapping) else {"": values}
    for index, (kind, lengths) in enumerate(kinds.items()):
        figure.add_bar(
            y=_kept_apart(names),
            x=list(lengths),
            name=kind or None,
            orientation="h",
            showlegend=len(kinds) > 1,
            marker={"color": palette.model_colour(index)},
        )
    figure.update_yaxes(autorange="reversed", showgrid=False)
    return figure.update_xaxes(showgrid=True, range=None if most is None else [0, most])


def dots(
    values: Mapping[str, float | None], intervals: Sequence[Any], x: str = "value"
) -> go.Figure:
    """Return a dot with its interval for each name, the first on top.

    >>> figure = dots({"CKA": 0.5, "RSA": 0.4}, [(0.25, 0.75), None], "similarity")
    >>> figure.data[0].y, figure.data[0].error_x.array
    (('CKA', 'RSA'), (0.25, 0))
    """
    numbers = [value_of(value) for value in values.values()]
    bars_of_error = error_bars(numbers, intervals)
    figure = empty(x)
    figure.add_scatter(
        x=numbers,
        y=_kept_apart(list(values)),
        mode="markers",
        marker={"size": 9, "color": palette.model_colour(0)},
        error_x=None if bars_of_error is None else bars_of_error.to_plotly_json(),
        showlegend=False,
        hovertemplate="%{y}: %{x:.3g}<extra></extra>",
    )
    figure.update_yaxes(autorange="reversed", type="category")
    return figure.update_xaxes(showgrid=True)


def mark_level(figure: go.Figure, value: float, label: str, *, log: bool = True) -> go.Figure:
    """Draw a dotted level with a label, on a logarithmic axis or (`log=False`) a linear one."""
    muted = palette.ROLES["muted"][0]
    figure.add_hline(y=value, line={"dash": "dot", "color": muted, "width": 1})
    figure.add_annotation(
        x=1,
        xref="paper",
        xanchor="right",
        y=math.log10(value) if log else value,
        yanchor="bottom",
        showarrow=False,
        text=label,
        font={"color": muted},
    )
    return figure


def thin(length: int, points: int = MOST_POINTS) -> list[int]:
    """Return at most about `points` of the indices 0 ... length − 1, evenly spread on a log axis.

    Both ends are among them.

    >>> thin(3)
    [0, 1, 2]
    >>> len(thin(4096)) <= 160, thin(4096)[-1]
    (True, 4095)
    """
    if length <= points:
        return list(range(length))
    indices = set()
    for point in range(points):
        index = round(length ** (point / (points - 1))) - 1
        indices.add(min(length - 1, index))
    return sorted(indices)
