"""A result in a notebook: its findings, one picture and a small table, as HTML without scripts, no wider than the cell."""

from __future__ import annotations

import html
import math
import re
from html import escape
from typing import TYPE_CHECKING, Any

from headscan.report.kit import palette
from headscan.report.kit.parts import Page, Part, Raw, Table, figures_of
from headscan.report.kit.words import clean, number, value_of, written

if TYPE_CHECKING:
    import plotly.graph_objects as go


# ---- A plotly figure as a small drawing in SVG: for notebooks, where plotly.js would be another 5 MB in every cell.
#
# It draws lines, points, horizontal and vertical bars and maps, with the ends of the axes and a legend; what is finer (bands,
# hovering, annotations) is the interactive figure's.

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 600, 230, 46, 26, 8
DASHED = {"dash": "7 4", "dot": "2 3", "dashdot": "7 3 2 3", "longdash": "11 4", "longdashdot": "11 3 2 3"}


def sketch(figure: go.Figure, alt: str) -> str:
    """The figure as an `<svg>` element, or "" where it holds nothing that can be drawn like this."""
    traces = [trace for trace in figure.data if trace.visible is not False and not getattr(trace, "fill", None)]
    lines = [trace for trace in traces if trace.type == "scatter" and trace.y is not None and trace.x is not None]
    bars = [trace for trace in traces if trace.type == "bar"]
    maps = [trace for trace in traces if trace.type == "heatmap" and trace.z is not None]
    body = _map(maps[0]) if maps else _bars(bars[0]) if bars else _lines(figure, lines) if lines else ""
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" style="max-width:100%;height:auto" role="img" '
        f'aria-label="{escape(clean(alt), quote=True)}" font-size="11" fill="currentColor">{body}</svg>'
        if body
        else ""
    )


def _label(text: object, x: float, y: float, anchor: str = "start") -> str:
    plain = clean(html.unescape(re.sub("<[^>]*>", "", str(text))))
    plain = plain if len(plain) <= 34 else plain[:33] + "…"
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{escape(plain)}</text>'


def _axis(values: list[float], log: bool, low: float, high: float) -> tuple[float, float, Any]:
    """The ends of the values and what puts a value between the pixels `low` and `high`."""
    kept = [value for value in values if not log or value > 0] or [0.0, 1.0]
    first, last = min(kept), max(kept)

    def place(value: float) -> float | None:
        if log and value <= 0:
            return None
        a, b, v = (math.log(n) for n in (first, last, value)) if log else (first, last, value)
        return low + (high - low) * ((v - a) / (b - a) if b > a else 0.5)

    return first, last, place


def _lines(figure: go.Figure, traces: list[Any]) -> str:
    names: dict[object, int] = {}
    for trace in traces:
        for value in trace.x:
            if value_of(value) is None:
                names.setdefault(value, len(names))
    at = [[names[x] if value_of(x) is None else float(x) for x in trace.x] for trace in traces]
    ys = [[value_of(y) for y in trace.y] for trace in traces]
    across, up = figure.layout.xaxis.type == "log" and not names, figure.layout.yaxis.type == "log"
    x0, x1, x_place = _axis([x for one in at for x in one], across, LEFT + 6, WIDTH - 8)
    floor = HEIGHT - BOTTOM - 16
    y0, y1, y_place = _axis([y for one in ys for y in one if y is not None], up, floor, TOP + 6)
    parts = [f'<path d="M{LEFT},{floor + 5}H{WIDTH}" stroke="currentColor" stroke-width=".6"/>']
    for trace, xs, values in zip(traces, at, ys, strict=True):
        spots = [(x_place(x), None if y is None else y_place(y)) for x, y in zip(xs, values, strict=False)]
        colour = escape(str(trace.line.color or trace.marker.color or palette.MODELS[0][0]), quote=True)
        colour = colour if colour.startswith("#") else palette.MODELS[0][0]
        if "lines" in (trace.mode or "lines"):
            path, pen = "", "M"
            for x, y in spots:
                path += "" if x is None or y is None else f"{pen}{x:.1f},{y:.1f}"
                pen = "M" if x is None or y is None else "L"
            dash = DASHED.get(str(trace.line.dash), "")
            parts.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/>')
        else:
            parts += [
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>'
                for x, y in spots[:2000]
                if x is not None and y is not None
            ]
    ends = (next(iter(names)), list(names)[-1]) if names else _ticks(figure, x0, x1)
    parts += [_label(number(y1), LEFT - 4, TOP + 10, "end"), _label(number(y0), LEFT - 4, floor, "end")]
    parts += [_label(ends[0], LEFT, floor + 18), _label(ends[1], WIDTH - 2, floor + 18, "end")]
    return "".join(parts) + _legend(traces)


def _ticks(figure: go.Figure, low: float, high: float) -> tuple[object, object]:
    axis = figure.layout.xaxis
    words = dict(zip(axis.tickvals or (), axis.ticktext or (), strict=False))
    return words.get(low, number(low)), words.get(high, number(high))


def _legend(traces: list[Any]) -> str:
    named = [trace for trace in traces if trace.name and trace.showlegend is not False][:4]
    parts = []
    for place, trace in enumerate(named if len(traces) > 1 else []):
        x = LEFT + place * (WIDTH - LEFT) / len(named)
        colour = str(trace.line.color or trace.marker.color)
        colour = colour if re.fullmatch("#[0-9a-f]{6}", colour) else palette.MODELS[0][0]
        dash = DASHED.get(str(trace.line.dash), "")
        parts.append(
            f'<path d="M{x:.0f},{HEIGHT - 8}h18" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/>'
        )
        text = clean(html.unescape(str(trace.name)))
        room = int((WIDTH - LEFT) / len(named) / 6.2) - 4
        parts.append(_label(text if len(text) <= room else text[: room - 1] + "…", x + 22, HEIGHT - 4))
    return "".join(parts)


def _bars(trace: Any) -> str:
    across = trace.orientation == "h"
    names, values = (trace.y, trace.x) if across else (trace.x, trace.y)
    rows = [(name, found) for name, value in zip(names, values, strict=False) if (found := value_of(value)) is not None]
    rows = rows[:12]
    if not rows:
        return ""
    most = max(abs(value) for _, value in rows) or 1.0
    high = (HEIGHT - TOP) / len(rows)
    parts = []
    for place, (name, value) in enumerate(rows):
        y, long = TOP + place * high, 300 * abs(value) / most
        parts.append(
            f'<rect x="220" y="{y:.1f}" width="{long:.1f}" height="{high * 0.7:.1f}" fill="{palette.MODELS[0][0]}"/>'
        )
        parts += [_label(name, 214, y + high * 0.6, "end"), _label(number(value), 226 + long, y + high * 0.6)]
    return "".join(parts)


def _map(trace: Any) -> str:
    rows = [[value_of(value) for value in row] for row in trace.z][:80]
    known = [value for row in rows for value in row if value is not None]
    if not known:
        return ""
    low, high = min(known), max(known)
    side = min((HEIGHT - TOP - 4) / len(rows), (WIDTH - LEFT) / max(len(row) for row in rows), 40)
    parts = [
        f'<rect x="{LEFT + j * side:.1f}" y="{TOP + i * side:.1f}" width="{side:.2f}" height="{side:.2f}" '
        f'fill="{palette.mix(palette.DEPTH[0], (value - low) / (high - low) if high > low else 0.5)}"/>'
        for i, row in enumerate(rows)
        for j, value in enumerate(row[:120])
        if value is not None
    ]
    right = LEFT + side * max(len(row) for row in rows) + 8
    return "".join(parts) + _label(f"{number(low)} (light) to {number(high)} (dark)", right, TOP + 12)


ROWS, COLUMNS, FINDINGS = 6, 5, 5
SIGNS = {"alert": "!", "notice": "·", "good": "+"}


def notebook(page: Page) -> str:
    """The page's first words, findings, first picture and first table; colours follow the notebook's own."""
    tone = "font-weight:bold" if page.head.alarm else "opacity:.75"
    titles = ", ".join(clean(title) for title in page.head.titles)
    found = [f"<b>{_safe(titles)}</b>", f'<div style="{tone}">{_safe(page.head.subtitle)}</div>']
    if page.findings:
        items = "".join(
            f"<li><b>{SIGNS.get(one.level, '·')} {_safe(one.code)}</b>: {_safe(one.sentence)}</li>"
            for one in page.findings[:FINDINGS]
        )
        found.append(f'<ul style="list-style:none;margin:.5em 0;padding:0">{items}</ul>')
    parts = list(page.parts())
    found += _picture(parts)
    tables = [part for part in parts if isinstance(part, Table) and part.lines and part.where != "page"]
    found += [_table(tables[0])] if tables else []
    found.append('<div style="opacity:.75">More: <code>.page()</code> <code>.plot()</code> <code>.frame()</code></div>')
    return (
        '<div style="max-width:640px;overflow-x:auto;font:13px/1.45 Helvetica,Arial,sans-serif;overflow-wrap:anywhere">'
        + "".join(found)
        + "</div>"
    )


def _picture(parts: list[Part]) -> list[str]:
    for part in parts:
        if isinstance(part, Raw) and part.notebook:
            return [part.notebook]
        for figure in figures_of(part):
            drawn = sketch(figure.made(), figure.alt)
            if drawn:
                return [drawn]
    return []


def _table(table: Table) -> str:
    """The first columns of the first rows."""
    heads = table.shown("terminal")[: COLUMNS + 1]
    sides = ["left" if text else "right" for *_, text in heads]
    cell = 'style="text-align:{};padding:2px 10px 2px 0;font-weight:normal"'
    titles = "".join(
        f"<th {cell.format(side)}>{_safe(one.term.title)}</th>" for side, one in zip(sides, heads, strict=True)
    )
    rows = ""
    for line in table.lines[:ROWS]:
        label = f"{line.label} {line.note}".strip()
        rows += f"<tr><th {cell.format('left')}>{_safe(label[:40])}</th>" + "".join(
            f"<td {cell.format(side)}>{_safe(written(line.cells[place - 1].value, term)[:60])}</td>"
            for side, (place, term, _) in zip(sides, heads, strict=True)
            if 0 < place <= len(line.cells)
        )
        rows += "</tr>"
    more = f'<div style="opacity:.75">{len(table.lines) - ROWS} more rows</div>' if len(table.lines) > ROWS else ""
    style = "border-collapse:collapse;font:inherit;overflow-wrap:normal"
    return f'<table style="{style}"><thead><tr>{titles}</tr></thead><tbody>{rows}</tbody></table>{more}'


def _safe(text: object) -> str:
    return escape(clean(text), quote=True)
