"""The numbers of a figure in a sentence: what a reader who cannot see it is told."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

from headscan.report.kit.words import number, value_of

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["describe"]

MOST = 6  # traces; more would not be listened to


def describe(figure: go.Figure) -> str:
    """How each line of a figure runs, the values of its bars, the ends of its map.

    >>> import plotly.graph_objects as go
    >>> describe(go.Figure(go.Scatter(x=[0, 1, 2], y=[0.5, None, 0.25], name="loss")))
    'loss: from 0.500 to 0.250.'
    """
    traces = [trace for trace in figure.data if trace.visible is not False and not getattr(trace, "fill", None)]
    told = [sentence for trace in traces[:MOST] if (sentence := _trace(trace))]
    rest = f" And {len(traces) - MOST} more." if len(traces) > MOST else ""
    return " ".join(told) + rest


def _trace(trace: Any) -> str:
    if trace.type == "heatmap":
        values = [found for row in trace.z for cell in row if (found := value_of(cell)) is not None]
        return f"Values from {number(min(values))} to {number(max(values))}." if values else "No values."
    across = trace.type == "bar" and trace.orientation == "h"
    given = list((trace.x if across else trace.y) if trace.y is not None else [])
    values = [found for cell in given if (found := value_of(cell)) is not None]
    if not values:
        return ""
    name = html.unescape(str(trace.name)) if trace.name else "Values"
    ends = f"from {number(values[0])} to {number(values[-1])}"
    low, high = min(values), max(values)
    between = "" if {low, high} <= {values[0], values[-1]} else f", lowest {number(low)}, highest {number(high)}"
    return f"{name}: {ends}{between}."
