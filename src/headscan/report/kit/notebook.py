"""A result in a notebook: its findings, one picture and a small table, as HTML without scripts, no wider than the cell."""

from __future__ import annotations

from html import escape

from headscan.report.kit.parts import Cell, Page, Part, Raw, Table, figures_of
from headscan.report.kit.sketch import sketch
from headscan.report.kit.words import clean, written

__all__ = ["notebook"]

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
    heads = [(place, column) for place, column in enumerate(table.heads) if column.where != "page"][: COLUMNS + 1]
    cell = 'style="text-align:{};padding:2px 10px 2px 0;font-weight:normal"'
    titles = "".join(
        f"<th {cell.format('left' if not place or column.text else 'right')}>{_safe(column.title)}</th>"
        for place, column in heads
    )
    rows = ""
    for line in table.lines[:ROWS]:
        cells = [one if isinstance(one, Cell) else Cell(one) for one in line.cells]
        label = f"{line.label} {line.note}".strip()
        rows += f"<tr><th {cell.format('left')}>{_safe(label[:40])}</th>" + "".join(
            f"<td {cell.format('left' if column.text else 'right')}>{_safe(written(cells[place - 1].value, column)[:60])}</td>"
            for place, column in heads
            if 0 < place <= len(cells)
        )
        rows += "</tr>"
    more = f'<div style="opacity:.75">{len(table.lines) - ROWS} more rows</div>' if len(table.lines) > ROWS else ""
    style = "border-collapse:collapse;font:inherit;overflow-wrap:normal"
    return f'<table style="{style}"><thead><tr>{titles}</tr></thead><tbody>{rows}</tbody></table>{more}'


def _safe(text: object) -> str:
    return escape(clean(text), quote=True)
