"""What a page is made of, as values: nothing here knows HTML, a terminal or plotly.

Text is untrusted unless it is `markupsafe.Markup`: it is escaped wherever it is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from headscan.report.kit.words import written
from headscan.run import Row, Term, terms_of

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from rich.console import RenderableType

Value = str | float | int | None
"""What a cell holds: an exact number or a text; None is shown as a dash."""

Where = Literal["everywhere", "page", "terminal"]


@dataclass(frozen=True)
class Cell:
    """A value with its 95 % interval, or why it is missing. `share` in [0, 1] tints the cell, as in
    a matrix of shares.
    """

    value: Value
    interval: tuple[float, float] | None = None
    why: str = ""
    share: float | None = None


@dataclass(frozen=True)
class Line:
    """A row: its label, its cells, and a note behind the label (such as 'random weights'), which
    also makes it stand back.
    """

    label: str
    cells: Sequence[Cell | Value]
    note: str = ""
    marks: Sequence[int] = ()


class Heading(NamedTuple):
    """A shown column: its place in the table, its term, and whether it holds text."""

    place: int
    term: Term
    text: bool


@dataclass(frozen=True)
class Table:
    """Rows under columns; the first column is the rows' label. A `folded` table is opened by a
    click.

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
    def heads(self) -> list[Term]:
        return [column if isinstance(column, Term) else Term(column) for column in self.columns]

    def shown(self, where: Where) -> list[Heading]:
        """The columns that the page or the terminal shows."""
        hidden = "terminal" if where == "page" else "page"
        return [
            Heading(place, term, not place or self._is_text(place - 1))
            for place, term in enumerate(self.heads)
            if term.where != hidden
        ]

    def _is_text(self, place: int) -> bool:
        values = [
            cell.value
            for line in self.lines
            for cell in line.cells[place : place + 1]
            if cell.value is not None
        ]
        return bool(values) and all(isinstance(value, str) for value in values)

    @property
    def grouped(self) -> list[tuple[str, int]]:
        return [
            (group, len(list(run)))
            for group, run in groupby(head.term.group for head in self.shown("page"))
        ]

    @cached_property
    def lines(self) -> list[FullLine]:
        """The rows with every value in a cell."""
        lines = (
            row if isinstance(row, Line) else Line(label_of(row[0]), row[1:]) for row in self.rows
        )
        return [
            FullLine(
                line.label, [as_cell(value) for value in line.cells], line.note, list(line.marks)
            )
            for line in lines
        ]


class FullLine(NamedTuple):
    """A `Line` whose values are all cells."""

    label: str
    cells: list[Cell]
    note: str
    marks: list[int]


def as_cell(value: Cell | Value) -> Cell:
    """The value in a cell of its own, unless it has one."""
    return value if isinstance(value, Cell) else Cell(value)


def label_of(value: Cell | Value) -> str:
    """A row's label as text."""
    held = as_cell(value).value
    return "" if held is None else str(held)


Extra = tuple[Term | str, Callable[..., Cell | Value]]
"""A column that is no field: its term, and what makes its cell of a row."""


def table(
    rows: Iterable[object],
    *columns: str | Extra,
    terms: Mapping[str, Term] | None = None,
    title: str = "",
    caption: str = "",
    folded: bool = False,
    where: Where = "everywhere",
    note: Callable[..., str] = lambda row: "",
) -> Table:
    """A table of records (dataclass instances, or `Row`s, whose `terms` must be given), a row each;
    `note` makes what stands behind the label. `columns` are fields, under the titles of their
    terms, or pairs of a term and a function of the row; the first is the label.
    """
    records = list(rows)
    own = terms if terms is not None else terms_of(type(records[0])) if records else {}
    heads = [
        replace(own.get(one, Term(one.replace("_", " "))), name=one)
        if isinstance(one, str)
        else one[0]
        for one in columns
    ]
    get = [
        (lambda row, name=one: cell_of(row, name)) if isinstance(one, str) else one[1]
        for one in columns
    ]
    lines = [
        Line(label_of(get[0](row)), [make(row) for make in get[1:]], note(row)) for row in records
    ]
    return Table(heads, lines, title, caption, folded, where=where)


def cell_of(row: object, name: str, why: str = "") -> Cell:
    """A field with its interval (`NAME_interval`; of `value`: `interval`; else from `NAME_error`),
    lists in words.
    """
    if isinstance(row, Row):
        value = row.get(name)
        interval = row.interval(name)
        value = value if isinstance(value, str | bool) else row.number(name)
    else:
        value = getattr(row, name)
        interval = getattr(row, f"{name}_interval", None)
        interval = getattr(row, "interval", None) if name == "value" else interval
        error = getattr(row, f"{name}_error", None)
        if interval is None and error is not None and value is not None:
            from headscan.statistics.uncertainty import normal

            interval = normal(value, error)
    if isinstance(value, bool):
        value = "yes" if value else "no"
    if isinstance(value, list | tuple):
        value = ", ".join(map(str, value))
    assert value is None or isinstance(value, str | float | int)
    return Cell(value, (interval[0], interval[1]) if interval and value is not None else None, why)


@dataclass(frozen=True)
class Figure:
    """A plotly figure: `result.plot(name)` returns it, the page shows it.

    `draw` is the figure or what makes it (then options of `plot` are its arguments). `alt` says
    what the picture shows; the kit adds the numbers of its lines. `caption` gets "Fig. n." in
    front. `title` and `sentence` stand above.
    """

    name: str
    draw: go.Figure | Callable[..., go.Figure]
    alt: str
    caption: str = ""
    height: int = 340
    title: str = ""
    sentence: str = ""
    kind: ClassVar[str] = "figure"

    def made(self) -> go.Figure:
        """The figure, drawn anew where it is a function."""
        return self.draw() if callable(self.draw) else self.draw


@dataclass(frozen=True)
class Panels:
    """Figures side by side under one caption; `small` ones are small multiples."""

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
    """A piece with a template of its own, for what no other part can say: the CAT scan, coloured
    tokens, matrices.

    `template` is a file of a registered package's `templates/` (see `html.environment`) and sees
    `context`. `data` goes to the scripts as `Headscan.data`, `later` packed, as `Headscan.later`,
    there from the first drawing on; `scripts` and `styles` are files of `assets/`. `terminal` and
    `notebook` (HTML without scripts) stand for it there.
    """

    template: str
    context: Mapping[str, object] = field(default_factory=dict)
    data: Mapping[str, object] = field(default_factory=dict)
    scripts: Sequence[str] = ()
    styles: Sequence[str] = ()
    later: Mapping[str, object] = field(default_factory=dict)
    terminal: RenderableType | None = None
    notebook: str = ""
    kind: ClassVar[str] = "raw"


Part = Table | Figure | Panels | Facts | Prose | Raw


def facts(row: object, *names: str) -> list[tuple[str, str]]:
    """The rows of `Facts` for fields of one record, each under the title of its term."""
    terms = terms_of(type(row))
    rows = []
    for name in names:
        cell = cell_of(row, name)
        ends = " to ".join(written(end, terms[name]) for end in cell.interval or ())
        rows.append(
            (terms[name].title, written(cell.value, terms[name]) + (f" ({ends})" if ends else ""))
        )
    return rows


@dataclass(frozen=True)
class Section:
    """A chapter of a page: its title and lead in the margin, its parts in the column. `name` is its
    anchor.
    """

    title: str
    lead: str = ""
    parts: Sequence[Part] = ()
    name: str = ""


def figures_of(part: Part) -> Sequence[Figure]:
    """The figures of one part."""
    return [part] if isinstance(part, Figure) else part.figures if isinstance(part, Panels) else []


@dataclass(frozen=True)
class Head:
    """What a kind's own function says of a result: the page's title (a name, never a path), its
    first sentence, its top.

    Several `titles` are parted by ampersands. `top` stands under them before the findings. `switch`
    offers to count sink tokens, too; figures' traces then carry `meta = {"first": "with" |
    "without"}`. `plots` are figures that `result.plot(name)` knows and the page does not show.
    `words` are for the glossary. `alarm` makes the sentence red. `listed`: the findings stand below
    the top.
    """

    titles: Sequence[str]
    subtitle: str
    top: Sequence[Part] = ()
    switch: bool = False
    plots: Mapping[str, Callable[..., go.Figure]] = field(default_factory=dict)
    words: Sequence[Term] = ()
    alarm: bool = False
    listed: bool = True


@dataclass(frozen=True)
class FindingLine:
    """A finding as it is shown: the level is alert, notice or good; the value is what stands large
    beside it, its unit below it.

    `word` says the level to readers.
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
class Shown:
    """The protocol and the data to take away."""

    command: str
    when: str
    facts: Sequence[Facts]
    data: str


@dataclass(frozen=True)
class Page:
    """A whole page of a result of `kind`."""

    kind: str
    head: Head
    sections: Sequence[Section]
    findings: Sequence[FindingLine]
    glossary: Sequence[Term]
    shown: Shown
    version: str

    def parts(self) -> Iterable[Part]:
        """All parts, from the top to the last section."""
        yield from self.head.top
        for section in self.sections:
            yield from section.parts
