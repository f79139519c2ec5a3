"""A result in a notebook: its findings and a small table, as HTML without scripts, no wider than the cell."""

from __future__ import annotations

from html import escape

from headscan.report.kit.parts import Page, Raw, Table
from headscan.report.kit.words import clean, written

ROWS, COLUMNS, FINDINGS = 6, 5, 5
SIGNS = {"alert": "!", "notice": "·", "good": "+"}


def notebook(page: Page) -> str:
    """The page's first words, findings and first table; colours follow the notebook's own."""
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
    found += [part.notebook for part in parts if isinstance(part, Raw) and part.notebook][:1]
    tables = [part for part in parts if isinstance(part, Table) and part.lines and part.where != "page"]
    found += [_table(tables[0])] if tables else []
    found.append('<div style="opacity:.75">More: <code>.page()</code> <code>.plot()</code> <code>.frame()</code></div>')
    return (
        '<div style="max-width:640px;overflow-x:auto;font:13px/1.45 Helvetica,Arial,sans-serif;overflow-wrap:anywhere">'
        + "".join(found)
        + "</div>"
    )


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
