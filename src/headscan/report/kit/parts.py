"""The parts that a page is made of, as values: nothing here knows HTML, a terminal or plotly.

Text is untrusted unless it is `markupsafe.Markup`: it is escaped wherever it is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import groupby
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from headscan.report.kit.words import written
from headscan.run import Interval, Row, Term, terms_of

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from rich.console import RenderableType

Value = str | float | int | None
"""The value of a cell: an exact number or a text; None is shown as a dash."""

Where = Literal["everywhere", "page", "terminal"]


@dataclass(frozen=True)
class Cell:
    """A value with its 95 % interval, or the reason why it is missing.

    `share` in [0, 1] tints the cell, as in a matrix of shares.
    """

    value: Value
    interval: tuple[float, float] | None = None
    why: str = ""
    share: float | None = None


@dataclass(frozen=True)
class Line:
    """A row: its label and its cells.

    `note` stands behind the label (such as 'random weights') and makes the row less prominent.
    `marks` are numbers of the table's footnotes. `href` makes the label a link.
    """

    label: str
    cells: Sequence[Cell | Value]
    note: str = ""
    marks: Sequence[int] = ()
    href: str = ""


class FullLine(NamedTuple):
    """A `Line` whose values are all cells."""

    label: str
    cells: list[Cell]
    note: str
    marks: list[int]
    href: str = ""


class Heading(NamedTuple):
    """A shown column: its index in the table (0 is the label), its term, and if it holds text."""

    column: int
    term: Term
    text: bool


@dataclass(frozen=True)
class Table:
    """Rows under columns; the first column is the rows' label. A `folded` table opens by a click.

    `columns` are terms, or titles. `rows` may be plain tuples (label, value, ...). `footnotes` are
    numbered; a `Line`'s `marks` point to them.
    """

    columns: Sequence[Term | str]
    rows: Sequence[Line | Sequence[Cell | Value]]
    title: str = ""
    caption: str = ""
    folded: bool = False
    footnotes: Sequence[str] = ()
    where: Where = "everywhere"
    kind: ClassVar[str] = "table"

    @cached_property
    def terms(self) -> list[Term]:
        """Return one term a column."""
        return [column if isinstance(column, Term) else Term(column) for column in self.columns]

    def headings(self, where: Where) -> list[Heading]:
        """Return the columns that the page or the terminal shows."""
        hidden = "terminal" if where == "page" else "page"
        headings = [
            Heading(column, term, self._is_text(column))
            for column, term in enumerate(self.terms)
            if term.where != hidden
        ]
        return headings

    def _is_text(self, column: int) -> bool:
        """Tell whether a column is the label, or has texts only."""
        if column == 0:
            return True
        cells = [line.cells[column - 1] for line in self.lines if column <= len(line.cells)]
        values = [cell.value for cell in cells if cell.value is not None]
        return bool(values) and all(isinstance(value, str) for value in values)

    @property
    def groups(self) -> list[tuple[str, int]]:
        """Return the titles above several columns, each with its number of columns."""
        titles = [heading.term.group for heading in self.headings("page")]
        return [(title, len(list(columns))) for title, columns in groupby(titles)]

    @cached_property
    def lines(self) -> list[FullLine]:
        """Return the rows with every value in a cell."""
        return [_full_line(row) for row in self.rows]


def _full_line(row: Line | Sequence[Cell | Value]) -> FullLine:
    line = row if isinstance(row, Line) else Line(label_of(row[0]), row[1:])
    cells = [as_cell(value) for value in line.cells]
    return FullLine(line.label, cells, line.note, list(line.marks), line.href)


def as_cell(value: Cell | Value) -> Cell:
    """Return the value in a cell of its own, unless it is a cell."""
    return value if isinstance(value, Cell) else Cell(value)


def label_of(value: Cell | Value) -> str:
    """Return a row's label as text."""
    label = as_cell(value).value
    return "" if label is None else str(label)


ExtraColumn = tuple[Term | str, Callable[..., Cell | Value]]
"""A column that is no field: its term, and the function that makes its cell from a row."""


def table(
    rows: Iterable[object],
    *columns: str | ExtraColumn,
    terms: Mapping[str, Term] | None = None,
    title: str = "",
    caption: str = "",
    folded: bool = False,
    where: Where = "everywhere",
    note: Callable[..., str] | None = None,
) -> Table:
    """Return a table of records, one row a record.

    Args:
        rows: dataclass instances, or `Row`s, whose `terms` must be given.
        columns: fields, under the titles of their terms, or pairs of a term and a function of the
            row; the first is the label.
        note: makes the note behind the label of a row.
    """
    records = list(rows)
    if terms is None:
        terms = terms_of(type(records[0])) if records else {}
    headings: list[Term | str] = []
    cell_makers: list[Callable[..., Cell | Value]] = []
    for column in columns:
        if isinstance(column, str):
            term = terms.get(column, Term(column.replace("_", " ")))
            headings.append(replace(term, name=column))
            cell_makers.append(partial(cell_of, name=column))
        else:
            headings.append(column[0])
            cell_makers.append(column[1])
    lines = []
    for record in records:
        label, *cells = [make_cell(record) for make_cell in cell_makers]
        lines.append(Line(label_of(label), cells, note(record) if note else ""))
    return Table(headings, lines, title, caption, folded, where=where)


def cell_of(row: object, name: str, why: str = "") -> Cell:
    """Return the cell of a field, with its interval; lists are joined by commas.

    The interval is the field `NAME_interval` (of `value`: `interval`), else follows from the
    standard error `NAME_error`. `why` says why the value is missing where it is.
    """
    value, interval = _number_of_row(row, name) if isinstance(row, Row) else _field(row, name)
    if isinstance(value, bool):
        value = "yes" if value else "no"
    if isinstance(value, list | tuple):
        value = ", ".join(map(str, value))
    assert value is None or isinstance(value, str | float | int)
    if value is None or not interval:
        return Cell(value, None, why)
    return Cell(value, (interval[0], interval[1]), why)


def _number_of_row(row: Row, name: str) -> tuple[object, Interval | None]:
    """Return a value of a row, None where it is neither text nor a finite number; its interval."""
    value = row.get(name)
    if not isinstance(value, str | bool):
        value = row.number(name)
    return value, row.interval(name)


def _field(record: object, name: str) -> tuple[object, Interval | None]:
    """Return a field of a dataclass and its interval."""
    value = getattr(record, name)
    interval_name = "interval" if name == "value" else f"{name}_interval"
    interval = getattr(record, interval_name, None)
    error = getattr(record, f"{name}_error", None)
    if interval is None and error is not None and value is not None:
        from headscan.statistics.uncertainty import normal

        interval = normal(value, error)
    return value, interval


@dataclass(frozen=True)
class Figure:
    """A plotly figure: `result.plot(name)` returns it, the page shows it.

    `draw` is the figure, or a function that makes it (then options of `plot` are its arguments).
    `alt` says what the picture shows; the kit adds the numbers of its lines. `caption` gets
    "Fig. n." in front. `title` and `sentence` stand above.
    """

    name: str
    draw: go.Figure | Callable[..., go.Figure]
    alt: str
    caption: str = ""
    height: int = 340
    title: str = ""
    sentence: str = ""
    kind: ClassVar[str] = "figure"

    def drawn(self) -> go.Figure:
        """Return the figure, drawn anew where `draw` is a function."""
        return self.draw() if callable(self.draw) else self.draw


@dataclass(frozen=True)
class Panels:
    """Figures side by side under one caption; `small` panels are small multiples."""

    figures: Sequence[Figure]
    caption: str = ""
    small: bool = False
    kind: ClassVar[str] = "panels"


@dataclass(frozen=True)
class Facts:
    """A list of names and values."""

    title: str
    rows: Sequence[tuple[str, str]]
    where: Where = "everywhere"
    kind: ClassVar[str] = "facts"


@dataclass(frozen=True)
class Prose:
    """A paragraph; `strong` words in front; `heading` makes it a heading of the third level."""

    text: str
    strong: str = ""
    heading: bool = False
    where: Where = "everywhere"
    kind: ClassVar[str] = "prose"


@dataclass(frozen=True)
class Raw:
    """A piece with a template of its own: the CAT scan, coloured tokens, matrices.

    It is for content that no other part can show. `template` is a file of a registered package's
    `templates/` (see `html.environment`) and sees `context`. `data` goes to the scripts as
    `Headscan.data`; `later` goes packed, as `Headscan.later`, and is there from the first drawing
    on. `scripts` and `styles` are files of `assets/`. A terminal shows `terminal` instead, a
    notebook `notebook` (HTML without scripts), a paper `table`.
    """

    template: str
    context: Mapping[str, object] = field(default_factory=dict)
    data: Mapping[str, object] = field(default_factory=dict)
    scripts: Sequence[str] = ()
    styles: Sequence[str] = ()
    later: Mapping[str, object] = field(default_factory=dict)
    terminal: RenderableType | None = None
    notebook: str = ""
    table: Table | None = None
    kind: ClassVar[str] = "raw"


Part = Table | Figure | Panels | Facts | Prose | Raw


def facts(row: object, *names: str) -> list[tuple[str, str]]:
    """Return the rows of `Facts` for fields of a record, each under the title of its term."""
    terms = terms_of(type(row))
    rows = []
    for name in names:
        term = terms[name]
        cell = cell_of(row, name)
        text = written(cell.value, term)
        if cell.interval:
            low, high = cell.interval
            text += f" ({written(low, term)} to {written(high, term)})"
        rows.append((term.title, text))
    return rows


@dataclass(frozen=True)
class Section:
    """A chapter of a page: its title and lead in the margin, its parts in the column.

    `name` is its anchor.
    """

    title: str
    lead: str = ""
    parts: Sequence[Part] = ()
    name: str = ""


def figures_of(part: Part) -> Sequence[Figure]:
    """Return the figures of a part."""
    if isinstance(part, Figure):
        return [part]
    if isinstance(part, Panels):
        return part.figures
    return []


@dataclass(frozen=True)
class Head:
    """The top of a page, made by the function of the page's kind.

    Attributes:
        titles: names, never paths; ampersands part several.
        subtitle: the first sentence.
        top: parts under the sentence, before the findings.
        switch: offers to count sink tokens, too; figures' traces then carry
            `meta = {"first": "with" | "without"}`.
        plots: figures that `result.plot(name)` knows and the page does not show.
        glossary: terms that the page explains beside those of its tables.
        conclusion: what follows from the numbers, and what to do.
        alarm: makes the sentence red.
        listed: the findings are listed below the top.
    """

    titles: Sequence[str]
    subtitle: str
    top: Sequence[Part] = ()
    switch: bool = False
    plots: Mapping[str, Callable[..., go.Figure]] = field(default_factory=dict)
    glossary: Sequence[Term] = ()
    conclusion: str = ""
    alarm: bool = False
    listed: bool = True


@dataclass(frozen=True)
class FindingLine:
    """A finding as it is shown.

    `level` is alarm, notice or fine, and `word` says it to readers. `value` stands large beside the
    sentence, its `unit` below it.
    """

    code: str
    level: str
    sentence: str
    value: float | None = None
    where: Sequence[str] = ()
    advice: str = ""
    unit: str = ""
    word: str = ""


@dataclass(frozen=True)
class Provenance:
    """The protocol of a result, and its data to take away; `document` is its result.json."""

    command: str
    started: str
    facts: Sequence[Facts]
    document: str


@dataclass(frozen=True)
class Page:
    """A whole page of a result of `kind`."""

    kind: str
    head: Head
    sections: Sequence[Section]
    findings: Sequence[FindingLine]
    glossary: Sequence[Term]
    provenance: Provenance
    version: str

    def parts(self) -> Iterable[Part]:
        """Yield all parts, from the top to the last section."""
        yield from self.head.top
        for section in self.sections:
            yield from section.parts
