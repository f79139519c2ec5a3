"""All numbers of the core measures, without sink tokens and with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headscan.report.kit import Cell, Column, Line, Section, Table, section
from headscan.report.kit.reading import Entry, bounds, entries, mapping, number, strings, text
from headscan.report.kit.words import named
from headscan.report.pages.scan._layers import field_of
from headscan.report.pages.scan._sites import NULLS, models, of_model

if TYPE_CHECKING:
    from headscan.geometry.result import ScanResult

__all__ = ["numbers"]

CORE = (
    "average_cosine", "mean_norm", "mean_vector_norm", "top_direction_share", "effective_rank", "participation_ratio", "isoscore",
)  # fmt: skip


@section("scan", 100)
def numbers(result: ScanResult) -> Section:
    """A table a model and null."""
    document: Entry = result.document
    measures = mapping(document, "measures")
    core = [name for name in measures if mapping(measures, name).get("core")] or list(CORE)
    columns = [Column("site"), Column("tokens"), Column("width")]
    for name in core:
        measure = mapping(measures, name)
        title = text(measure, "title", name.replace("_", " "))
        places = 4 if str(measure.get("range")) in ("[0.0, 1.0]", "[-1.0, 1.0]", "[0, 1]", "[-1, 1]") else None
        columns += [Column(word, group=title, places=places) for word in ("without", "with")]
    tables = []
    for model in models(document):
        for null in (None, *NULLS):
            found = of_model(entries(document, "nulls" if null else "sites"), model, null)
            notes = list(dict.fromkeys(note for entry in found for note in strings(entry, "notes")))
            title = f"{named(model)}: {NULLS[null]}" if null else named(model)
            rows = [_line(entry, core, notes) for entry in found]
            tables.append(Table(columns, rows, title, folded=bool(null), footnotes=notes, where="page"))
    lead = (
        "Small figures are 95 % intervals. “Without” leaves out sink tokens: longer than three times the median of "
        "their window."
    )
    return Section("All numbers", lead, tables)


def _line(entry: Entry, core: list[str], notes: list[str]) -> Line:
    """Each measure without and with sinks, and the numbers of the notes that belong to the site."""
    own = strings(entry, "notes")
    why = " ".join(own) or "not defined here"
    cells: list[Cell] = [Cell(number(entry, "tokens"), why=why), Cell(number(entry, "width"), why=why)]
    for name in core:
        for field in (field_of(name, "without"), field_of(name, "with")):
            cells.append(Cell(number(entry, field), bounds(entry, field), why))
    return Line(text(entry, "site"), cells, marks=[notes.index(note) + 1 for note in own])
