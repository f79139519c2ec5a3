"""The findings and a small table of a page for a notebook, without scripts.

It is no wider than the cell, and its colours follow the notebook's own.
"""

from html import escape

from headscan.report.kit.parts import FindingLine, FullLine, Heading, Page, Raw, Table
from headscan.report.kit.words import clean, written

MOST_ROWS = 12
MOST_COLUMNS = 5
MOST_FINDINGS = 5
LONGEST_LABEL = 40
LONGEST_CELL = 60
SIGNS = {"alarm": "!", "notice": "·", "fine": "+"}
OUTER_STYLE = (
    "max-width:640px;overflow-x:auto;font:13px/1.45 Helvetica,Arial,sans-serif;"
    "overflow-wrap:anywhere"
)
TABLE_STYLE = "border-collapse:collapse;font:inherit;overflow-wrap:normal"
FAINT = "opacity:.75"


def notebook(page: Page) -> str:
    """Return the page's first sentence, findings and first table as HTML without scripts."""
    titles = ", ".join(page.head.titles)
    subtitle_style = "font-weight:bold" if page.head.alarm else FAINT
    pieces = [
        f"<b>{_escaped(titles)}</b>",
        f'<div style="{subtitle_style}">{_escaped(page.head.subtitle)}</div>',
    ]
    if page.head.conclusion:
        pieces.append(f"<div>{_escaped(page.head.conclusion)}</div>")
    if page.findings:
        items = "".join(map(_item, page.findings[:MOST_FINDINGS]))
        pieces.append(f'<ul style="list-style:none;margin:.5em 0;padding:0">{items}</ul>')
    parts = list(page.parts())
    pieces += [part.notebook for part in parts if isinstance(part, Raw) and part.notebook][:1]
    tables = [part for part in parts if isinstance(part, Table) and part.where != "page"]
    pieces += [_table(table) for table in tables if table.lines][:1]
    pieces.append(
        f'<div style="{FAINT}">More: <code>.page()</code> <code>.plot()</code> '
        "<code>.frame()</code></div>"
    )
    return f'<div style="{OUTER_STYLE}">{"".join(pieces)}</div>'


def _item(finding: FindingLine) -> str:
    sign = SIGNS.get(finding.level, "·")
    code = f"<b>{sign} {_escaped(finding.code)}</b>"
    return f"<li>{code}: {_escaped(finding.sentence)}</li>"


def _table(table: Table) -> str:
    """Return the first columns of the first rows."""
    headings = table.headings("terminal")[: MOST_COLUMNS + 1]
    titles = [f"<th {_style(h.text)}>{_escaped(h.term.title)}</th>" for h in headings]
    rows = [_row(line, headings) for line in table.lines[:MOST_ROWS]]
    html = (
        f'<table style="{TABLE_STYLE}"><thead><tr>{"".join(titles)}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table>"
    )
    left_out = len(table.lines) - MOST_ROWS
    if left_out > 0:
        noun = "row" if left_out == 1 else "rows"
        html += f'<div style="{FAINT}">{left_out} more {noun}</div>'
    return html


def _row(line: FullLine, headings: list[Heading]) -> str:
    label = f"{line.label} {line.note}".strip()[:LONGEST_LABEL]
    html = f"<th {_style(True)}>{_escaped(label)}</th>"
    for column, term, text in headings:
        if 0 < column <= len(line.cells):
            cell = line.cells[column - 1]
            value = written(cell.value, term)[:LONGEST_CELL]
            interval = ""
            if cell.interval is not None:
                low, high = cell.interval
                ends = _escaped(f"{written(low, term)} to {written(high, term)}")
                interval = f'<div style="{FAINT};font-size:80%">{ends}</div>'
            html += f"<td {_style(text)}>{_escaped(value)}{interval}</td>"
    return f"<tr>{html}</tr>"


def _style(text: bool) -> str:
    """Return the style attribute of a cell: texts stand on the left, numbers on the right."""
    side = "left" if text else "right"
    return f'style="text-align:{side};padding:2px 10px 2px 0;font-weight:normal"'


def _escaped(text: object) -> str:
    return escape(clean(text))
