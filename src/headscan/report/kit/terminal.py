"""A page in short for the terminal: its tables, words and findings; it fits 80 columns and any
encoding.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import plotly.graph_objects as go
from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.segment import Segment
from rich.table import Table as RichTable
from rich.text import Text

from headscan.report.kit.parts import (
    Cell,
    Facts,
    FindingLine,
    Page,
    Part,
    Prose,
    Raw,
    Table,
    figures_of,
)
from headscan.report.kit.words import clean, written
from headscan.run import BadInput, Term

LEVELS = {"alert": ("!", "bold red"), "notice": ("·", "yellow"), "good": ("+", "green")}
ROWS = 14
"""Of one folded table; the page has all."""
PLAIN = str.maketrans(
    "—–−·×…“”‘’\u202f\u2009°⁻⁰¹²³⁴⁵⁶⁷⁸⁹σ‖→⏎⇥␣●◐○↗", "---.x.\"\"''  o-0123456789s|>\\\\_*o.>"
)
"""For an encoding that lacks them, one character each, so that columns stay in line."""


class Legible:
    """A renderable in characters that the console's encoding has: what it lacks is replaced, one
    for one.

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
        """The text as it can be written in the encoding."""
        return (
            text if _has(encoding, text) else "".join(_letter(letter, encoding) for letter in text)
        )


def _letter(letter: str, encoding: str) -> str:
    forms = letter, letter.translate(PLAIN), unicodedata.normalize("NFKD", letter)[:1]
    return next((form for form in forms if _has(encoding, form)), "?")


def _has(encoding: str, text: str) -> bool:
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def terminal(page: Page, *, whole: bool = False) -> RenderableType:
    """A rich renderable: `rich.print(terminal(page))`; `whole` has what only the page shows, too.

    Control characters of untrusted text are shown as U+FFFD, and square brackets are no markup.
    """
    head = Text(f"\n{', '.join(map(clean, page.head.titles))}", style="bold")
    head.append(
        f"\n{clean(page.head.subtitle)}", style="bold red" if page.head.alarm else "not bold dim"
    )
    shown: list[RenderableType] = [head]
    for part in page.parts():
        shown += _part(part, whole)
    if page.findings and (page.head.listed or whole):
        shown += [Text(), *(_finding(found) for found in page.findings)]
    return Legible(Group(*shown))


def _part(part: Part, whole: bool = False) -> list[RenderableType]:
    if isinstance(part, Raw):
        return [] if part.terminal is None else [part.terminal]
    if isinstance(part, Table | Facts | Prose) and (whole or part.where != "page"):
        if isinstance(part, Table):
            return _table(part)
        if isinstance(part, Facts):
            facts = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, show_header=False)
            for name, value in part.rows:
                facts.add_row(Text(clean(name)), Text(clean(value)))
            return [facts]
        if part.heading:
            return [Text(f"\n{clean(part.text)}", style="bold")]
        return [Text(f"{part.strong} {clean(part.text)}".strip(), style="dim")]
    return []


def _table(table: Table) -> list[RenderableType]:
    heads = table.shown("terminal")
    grid = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), collapse_padding=True)
    for place, term, text in heads:
        title = term.column or (f"{term.group}, {term.title}" if term.group else term.title)
        grid.add_column(
            Text(clean(title).replace("\ufffd", "\n")),
            justify="left" if text else "right",
            overflow="fold",
            min_width=None if place else 9,
            no_wrap=not text,
        )
    lines = table.lines[:ROWS] if table.folded else table.lines
    for index, line in enumerate(lines):
        label = Text(clean(line.label))
        label.append(
            f" {line.note}".lstrip() if not line.label else f" {line.note}" if line.note else "",
            style="dim",
        )
        cells = [
            _cell(line.cells[place - 1], term)
            for place, term, _ in heads
            if 0 < place <= len(line.cells)
        ]
        last = index + 1 < len(lines) and not line.note and bool(lines[index + 1].note)
        grid.add_row(label, *cells, style="dim" if line.note else None, end_section=last)
    shown: list[RenderableType] = []
    if table.title and not table.folded:
        shown.append(Text(f"\n{clean(table.title)}", style="bold"))
    shown += [grid] if lines else []
    if len(table.lines) > len(lines):
        shown.append(
            Text(
                f"... {len(table.lines) - len(lines)} more rows in the page and in result.json",
                style="dim",
            )
        )
    return shown + [Text(f"— {clean(note)}", style="dim") for note in table.footnotes]


def _cell(cell: Cell, term: Term) -> Text:
    shown = Text(clean(written(cell.value, term)))
    if cell.interval and term.spread:
        low, high = (written(end, term) for end in cell.interval)
        shown.append(f" [{low}, {high}]", style="dim")
    return shown


def _finding(found: FindingLine) -> Text:
    """'! CONE: any two tokens of the last block point the same way, mean cosine 0.97 (block.5)'."""
    sign, style = LEVELS.get(found.level, LEVELS["notice"])
    text = (
        Text(f"{sign} ", style=style)
        .append(clean(found.code), style=style)
        .append(f": {clean(found.sentence)}")
    )
    if found.advice:
        text.append(f" {clean(found.advice)}")
    where = ", ".join(map(clean, found.where))
    return text.append(f" ({where})" if where else "", style="dim")


# ---- What goes into a paper: figures as SVG and PDF, tables as LaTeX.

FORMATS = ("svg", "pdf")
WIDTH = 640  # pixels; SVG and PDF have no resolution
ESCAPES = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "−": "$-$",
    "×": r"$\times$",
    "–": "--",
    "—": "---",
    "\ufffd": "?",
    "|": r"\textbar{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "\u202f": r"\,",
    "σ": r"$\sigma$",
    "‖": r"$\|$",
}
SUPERSCRIPTS = dict(zip("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789", strict=True))


def check_kaleido() -> None:
    """BadInput where what writes figures is not installed: said before the work whose figures they
    are.
    """
    if find_spec("kaleido") is None:
        raise BadInput("Figures for papers need kaleido: pip install 'headscan[figures]'.")


def write_figures(page: Page, folder: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Every figure of a page as NAME.FORMAT, in the light colours on white, as large as on the
    page; the paths.

    Raises BadInput where kaleido or a Chrome is missing, or a format is none of SVG, PDF, PNG.
    """
    if unknown := [one for one in formats if one not in (*FORMATS, "png")]:
        raise BadInput(f"Figures are written as svg, pdf or png, not as {unknown[0]}.")
    figures = {one.name: one for part in page.parts() for one in figures_of(part)}
    if not figures:
        raise BadInput(f"A result of the verb '{page.kind}' has no figure.")
    check_kaleido()
    import plotly.io

    white = {"width": WIDTH, "paper_bgcolor": "white", "plot_bgcolor": "white"}
    drawn = [
        go.Figure(one.made()).update_layout(white, height=one.height) for one in figures.values()
    ]
    paths = [folder / f"{name}.{kind}" for name in figures for kind in formats]
    every = [figure for figure in drawn for _ in formats]
    try:
        plotly.io.write_images(every, [str(path) for path in paths])
    except Exception as error:  # whatever keeps the browser from starting
        why = str(error).splitlines()[0]
        raise BadInput(
            f"The figures could not be drawn ({why}): is Chrome or Chromium installed?"
        ) from None
    return paths


def latex(table: Table) -> str:
    r"""A table for a paper, in booktabs' rules; intervals stand behind their numbers.

    >>> from headscan.report.kit.parts import Line
    >>> print(latex(Table(["site", Term("CKA", places=2)], [Line("block_0", [Cell(0.5, (0.4, 0.6))])])))
    \begin{tabular}{lr}
    \toprule
    site & CKA \\
    \midrule
    block\_0 & 0.50 [0.40, 0.60] \\
    \bottomrule
    \end{tabular}
    """
    shown = table.shown("page")
    kinds = "".join("l" if text else "r" for *_, text in shown)
    titles = [f"{term.group}, {term.title}" if term.group else term.title for _, term, _ in shown]
    lines = [
        rf"\begin{{tabular}}{{{kinds}}}",
        r"\toprule",
        " & ".join(map(_escaped, titles)) + r" \\",
        r"\midrule",
    ]
    for line in table.lines:
        cells = [f"{line.label} {line.note}".strip()]
        for place, term, _ in shown[1:]:
            cell = line.cells[place - 1] if place <= len(line.cells) else Cell(None)
            ends = [written(end, term) for end in cell.interval or ()]
            cells.append(written(cell.value, term) + (f" [{', '.join(ends)}]" if ends else ""))
        # TeX would take these for an argument of the row before
        first = "{}" * cells[0].startswith(("[", "*"))
        lines.append(first + " & ".join(map(_escaped, cells)) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])


def _escaped(text: str) -> str:
    found = ""
    power = ""
    for letter in clean(text):
        if letter in SUPERSCRIPTS:
            power += SUPERSCRIPTS[letter]
            continue
        found = found + (f"$^{{{power}}}$" if power else "") + ESCAPES.get(letter, letter)
        power = ""
    return found + (f"$^{{{power}}}$" if power else "")
