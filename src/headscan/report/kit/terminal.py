"""A page in short for the terminal: its tables, words and findings.

It fits 80 columns and any encoding.
"""

import unicodedata
from collections.abc import Iterator

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.segment import Segment
from rich.table import Table as RichTable
from rich.text import Text

from headscan.report.kit.parts import (
    Cell,
    Facts,
    FindingLine,
    FullLine,
    Heading,
    Page,
    Part,
    Prose,
    Raw,
    Table,
)
from headscan.report.kit.words import clean, written
from headscan.run import Term

LEVELS = {"alarm": ("!", "bold red"), "notice": ("·", "yellow"), "fine": ("+", "green")}
"""Sign and style of each level of a finding."""
MOST_FOLDED_ROWS = 14
"""Rows of a folded table that are shown; the page has all."""
PLAIN = str.maketrans(
    "—–−·×…“”‘’\u2009°⁻⁰¹²³⁴⁵⁶⁷⁸⁹σ‖→⏎⇥␣●◐○↗", "---.x.\"\"'' o-0123456789s|>\\\\_*o.>"
)
"""Replacements for an encoding that lacks these characters; one each, so that columns align."""


class Legible:
    """A renderable in characters that the console's encoding has; others are replaced one by one.

    >>> console = Console(width=40, force_terminal=False)
    >>> Legible(Text("0.97 — \u2212\u03c3")).translated("ascii", "0.97 — \u2212\u03c3")
    '0.97 - -s'
    """

    def __init__(self, inside: RenderableType) -> None:
        self.inside = inside

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for segment in console.render(self.inside, options):
            yield segment._replace(text=self.translated(options.encoding, segment.text))

    def translated(self, encoding: str, text: str) -> str:
        """Return the text as it can be written in the encoding."""
        if _has(encoding, text):
            return text
        return "".join(_letter(letter, encoding) for letter in text)


def _letter(letter: str, encoding: str) -> str:
    """Return the letter, or what comes nearest to it in the encoding."""
    without_accent = unicodedata.normalize("NFKD", letter)[:1]
    for form in (letter, letter.translate(PLAIN), without_accent):
        if _has(encoding, form):
            return form
    return "?"


def _has(encoding: str, text: str) -> bool:
    """Tell whether the encoding has all characters of the text."""
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def terminal(page: Page, *, whole: bool = False) -> RenderableType:
    """Return a rich renderable: `rich.print(terminal(page))`.

    `whole` adds what only the page shows. Control characters of untrusted text are shown as U+FFFD,
    and square brackets are no markup.
    """
    heading = Text(f"\n{', '.join(map(clean, page.head.titles))}", style="bold")
    subtitle_style = "bold red" if page.head.alarm else "not bold dim"
    heading.append(f"\n{clean(page.head.subtitle)}", style=subtitle_style)
    if page.head.conclusion:
        heading.append(f"\n{clean(page.head.conclusion)}")
    renderables: list[RenderableType] = [heading]
    for part in page.parts():
        renderables += _part(part, whole)
    if page.findings and (page.head.listed or whole):
        renderables.append(Text())
        renderables += map(_finding, page.findings)
    return Legible(Group(*renderables))


def plain_grid(gap: int = 1) -> RichTable:
    """Return an empty table with a line under its header, and `gap` spaces between columns."""
    return RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, gap), collapse_padding=True)


def _part(part: Part, whole: bool) -> list[RenderableType]:
    if isinstance(part, Raw):
        return [] if part.terminal is None else [part.terminal]
    if not isinstance(part, Table | Facts | Prose):
        return []
    if part.where == "page" and not whole:
        return []
    if isinstance(part, Table):
        return _table(part)
    if isinstance(part, Facts):
        return [_facts(part)]
    return [_prose(part)]


def _facts(facts: Facts) -> RichTable:
    grid = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, show_header=False)
    for name, value in facts.rows:
        grid.add_row(Text(clean(name)), Text(clean(value)))
    return grid


def _prose(prose: Prose) -> Text:
    if prose.heading:
        return Text(f"\n{clean(prose.text)}", style="bold")
    return Text(f"{prose.strong} {clean(prose.text)}".strip(), style="dim")


def _table(table: Table) -> list[RenderableType]:
    headings = table.headings("terminal")
    lines = table.lines[:MOST_FOLDED_ROWS] if table.folded else table.lines
    renderables: list[RenderableType] = []
    if table.title and not table.folded:
        renderables.append(Text(f"\n{clean(table.title)}", style="bold"))
    if lines:
        renderables.append(_grid(headings, lines))
    left_out = len(table.lines) - len(lines)
    if left_out > 0:
        rows = "row" if left_out == 1 else "rows"
        sentence = f"... {left_out} more {rows} in the page and in result.json"
        renderables.append(Text(sentence, style="dim"))
    for note in table.footnotes:
        renderables.append(Text(f"— {clean(note)}", style="dim"))
    return renderables


def _grid(headings: list[Heading], lines: list[FullLine]) -> RichTable:
    grid = plain_grid()
    for column, term, text in headings:
        grid.add_column(
            Text(clean(_title(term)).replace("\ufffd", "\n")),
            justify="left" if text else "right",
            overflow="fold",
            min_width=None if column else 9,
            no_wrap=not text,
        )
    for index, line in enumerate(lines):
        cells = [
            _cell(line.cells[column - 1], term)
            for column, term, _ in headings
            if 0 < column <= len(line.cells)
        ]
        # A rule parts the rows of models from those with a note, such as random weights.
        next_has_note = index + 1 < len(lines) and bool(lines[index + 1].note)
        grid.add_row(
            _label(line),
            *cells,
            style="dim" if line.note else None,
            end_section=next_has_note and not line.note,
        )
    return grid


def _title(term: Term) -> str:
    """Return the short title above a column."""
    if term.column:
        return term.column
    return f"{term.group}, {term.title}" if term.group else term.title


def _label(line: FullLine) -> Text:
    label = Text(clean(line.label))
    if line.note:
        label.append(f" {line.note}" if line.label else line.note, style="dim")
    return label


def _cell(cell: Cell, term: Term) -> Text:
    text = Text(clean(written(cell.value, term)))
    if cell.interval and term.spread:
        low, high = cell.interval
        text.append(f" [{written(low, term)}, {written(high, term)}]", style="dim")
    return text


def _finding(finding: FindingLine) -> Text:
    """Return '! CONE: two tokens have a mean cosine of 0.97. (block.5)'."""
    sign, style = LEVELS.get(finding.level, LEVELS["notice"])
    text = Text(f"{sign} ", style=style)
    text.append(clean(finding.code), style=style)
    text.append(f": {clean(finding.sentence)}")
    if finding.advice:
        text.append(f" {clean(finding.advice)}")
    where = ", ".join(map(clean, finding.where))
    return text.append(f" ({where})" if where else "", style="dim")
