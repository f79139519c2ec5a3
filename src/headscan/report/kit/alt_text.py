"""The numbers of a figure in sentences, for readers who cannot see it."""

import html
from collections.abc import Iterable
from typing import Any

import plotly.graph_objects as go

from headscan.report.kit.words import number, value_of

MOST_TRACES = 6  # a listener would not follow more


def describe(figure: go.Figure) -> str:
    """Say how each line of a figure runs, and the range of its bars and maps.

    >>> describe(go.Figure(go.Scatter(x=[0, 1, 2], y=[0.5, None, 0.25], name="loss")))
    'loss: from 0.500 to 0.250.'
    """
    traces = [trace for trace in figure.data if _is_described(trace)]
    sentences = [_describe_trace(trace) for trace in traces[:MOST_TRACES]]
    if len(traces) > MOST_TRACES:
        sentences.append(f"And {len(traces) - MOST_TRACES} more.")
    return " ".join(filter(None, sentences))


def _is_described(trace: Any) -> bool:
    """Tell whether a trace is visible and not the filled area of an interval."""
    return trace.visible is not False and not getattr(trace, "fill", None)


def _describe_trace(trace: Any) -> str:
    if trace.type == "heatmap":
        values = _finite(cell for row in trace.z for cell in row)
        if not values:
            return "No values."
        return f"Values from {number(min(values))} to {number(max(values))}."

    horizontal = trace.type == "bar" and trace.orientation == "h"
    data = trace.x if horizontal else trace.y
    if trace.y is None or data is None:
        return ""
    values = _finite(data)
    if not values:
        return ""
    name = html.unescape(str(trace.name)) if trace.name else "Values"
    first = values[0]
    last = values[-1]
    sentence = f"{name}: from {number(first)} to {number(last)}"
    low = min(values)
    high = max(values)
    if not {low, high} <= {first, last}:
        sentence += f", lowest {number(low)}, highest {number(high)}"
    return f"{sentence}."


def _finite(cells: Iterable[object]) -> list[float]:
    """Return the finite numbers among the cells."""
    values = map(value_of, cells)
    return [value for value in values if value is not None]
