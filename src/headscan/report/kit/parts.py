"""What a page is made of, as values: nothing here knows HTML, a terminal or plotly.

Text is untrusted unless it is `markupsafe.Markup`: it is escaped wherever it is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, ClassVar, Literal

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from rich.console import RenderableType

Value = str | float | int | None
"""What a cell holds: an exact number or a text; None is shown as a dash."""

Where = Literal["everywhere", "page", "terminal"]


@dataclass(frozen=True)
class Cell:
    """A value with what belongs to it: its 95 % interval, why it is missing, a link or a longer text on pointing at it.

    `share` in [0, 1] tints the cell, as in a matrix of shares.
    """

    value: Value
    interval: tuple[float, float] | None = None
    why: str = ""
    share: float | None = None


@dataclass(frozen=True)
class Column:
    """A table's column: its title, how its numbers are written, and what it means (which goes into the glossary).

    `places` fixes the decimals, `percent` multiplies by 100, `scientific` writes 1.2 × 10⁻⁵; else three significant digits.
    `group` is a title above several columns; `short` the title in the terminal, with a line break where one helps.
    `spread` shows the intervals in the terminal, too, where room is dear.
    """

    title: str
    sentence: str = ""
    formula: str = ""
    unit: str = ""
    name: str = ""
    group: str = ""
    short: str = ""
    places: int | None = None
    percent: bool = False
    scientific: bool = False
    text: bool = False
    spread: bool = False
    where: Where = "everywhere"


@dataclass(frozen=True)
class Line:
    """A row: its label, its cells, and a note behind the label (such as 'random weights'), which also makes it stand back."""

    label: str
    cells: Sequence[Cell | Value]
    note: str = ""
    marks: Sequence[int] = ()


@dataclass(frozen=True)
class Table:
    """Rows under columns; the first column is the rows' label. A `folded` table is opened by a click.

    `rows` may be plain tuples (label, value, ...). `footnotes` are numbered; a `Line`'s `marks` point to them.
    """

    columns: Sequence[Column | str]
    rows: Sequence[Line | Sequence[Cell | Value]]
    title: str = ""
    caption: str = ""
    folded: bool = False
    footnotes: Sequence[str] = ()
    where: Where = "everywhere"
    kind: ClassVar[str] = "table"

    @property
    def heads(self) -> list[Column]:
        """The columns as `Column`s."""
        return [column if isinstance(column, Column) else Column(column) for column in self.columns]

    @property
    def grouped(self) -> list[tuple[str, list[Column]]]:
        """The page's columns by runs of the same group."""
        shown = [column for column in self.heads if column.where != "terminal"]
        return [(group, list(found)) for group, found in groupby(shown, key=lambda column: column.group)]

    @property
    def lines(self) -> list[Line]:
        """The rows as `Line`s of `Cell`s."""
        found = []
        for row in self.rows:
            line = row if isinstance(row, Line) else Line(label_of(row[0]), row[1:])
            cells = [cell if isinstance(cell, Cell) else Cell(cell) for cell in line.cells]
            found.append(Line(line.label, cells, line.note, line.marks))
        return found


def label_of(value: Cell | Value) -> str:
    """A row's label as text."""
    held = value.value if isinstance(value, Cell) else value
    return "" if held is None else str(held)


@dataclass(frozen=True)
class Figure:
    """A plotly figure: `result.plot(name)` returns it, the page shows it.

    `draw` is the figure or what makes it (then options of `plot` are its arguments). `alt` says what the picture shows;
    the kit adds the numbers of its lines. `caption` gets "Fig. n." in front. `title` and `sentence` stand above.
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
    """A piece with a template of its own, for what no other part can say: the CAT scan, coloured tokens, matrices.

    `template` is a file of `report/templates/` and sees `context`. `data` goes to the scripts as `Headscan.data`;
    `scripts` and `styles` are files of `report/assets/`. `terminal` and `notebook` (HTML without scripts) stand for it there.
    """

    template: str
    context: Mapping[str, object] = field(default_factory=dict)
    data: Mapping[str, object] = field(default_factory=dict)
    scripts: Sequence[str] = ()
    styles: Sequence[str] = ()
    terminal: RenderableType | None = None
    notebook: str = ""
    kind: ClassVar[str] = "raw"


Part = Table | Figure | Panels | Facts | Prose | Raw


@dataclass(frozen=True)
class Section:
    """A chapter of a page: its title and lead in the margin, its parts in the column. `name` is its anchor."""

    title: str
    lead: str = ""
    parts: Sequence[Part] = ()
    name: str = ""

    def figures(self) -> list[Figure]:
        """All its figures, those in panels too, in order."""
        return [figure for part in self.parts for figure in figures_of(part)]


def figures_of(part: Part) -> Sequence[Figure]:
    """The figures of one part."""
    return [part] if isinstance(part, Figure) else part.figures if isinstance(part, Panels) else []


@dataclass(frozen=True)
class Head:
    """What a kind's own function says of a result: the page's title (a name, never a path), its first sentence, its top.

    Several `titles` are parted by ampersands. `top` stands under them before the findings. `switch` offers to count
    sink tokens, too; figures' traces then carry `meta = {"first": "with" | "without"}`. `plots` are figures that
    `result.plot(name)` knows and the page does not show. `alarm` makes the first sentence red.
    """

    titles: Sequence[str]
    subtitle: str
    top: Sequence[Part] = ()
    switch: bool = False
    plots: Mapping[str, Callable[..., go.Figure]] = field(default_factory=dict)
    words: Sequence[Word] = ()
    alarm: bool = False


@dataclass(frozen=True)
class Word:
    """A word of the glossary: a measure, a method, a verdict."""

    title: str
    sentence: str
    name: str = ""
    formula: str = ""
    ends: str = ""
    source: str = ""


@dataclass(frozen=True)
class FindingLine:
    """A finding as it is shown: the level is alert, notice or good; the value is what stands large beside it, its unit below it.

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
    """The protocol and the data to take away, as the kit reads them from a result's document."""

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
    glossary: Sequence[Word]
    shown: Shown
    version: str

    def parts(self) -> Iterable[Part]:
        """All parts, from the top to the last section."""
        yield from self.head.top
        for section in self.sections:
            yield from section.parts
