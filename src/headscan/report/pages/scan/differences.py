"""What changes from layer to layer, from model to model, and from trained to random weights: paired differences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headscan.report.kit import Cell, Column, Line, Section, Table, section
from headscan.report.kit.reading import Entry, entries, mapping, number, numbers, text
from headscan.report.kit.words import named

if TYPE_CHECKING:
    from headscan.geometry.result import ScanResult

__all__ = ["differences"]

LEAD = (
    "Sites that read the same text err together, so an interval of a difference is narrower than two intervals say. "
    "Each site less the one before it, the last less the first, each less the same site of the model before, and of random "
    "weights."
)


@section("scan", 99)
def differences(result: ScanResult) -> Section | None:
    """A row a pair, a column a core measure."""
    document: Entry = result.document
    measures = mapping(document, "measures")
    core = [name for name in measures if mapping(measures, name).get("core")]
    rows: dict[tuple[str, str, str, str], dict[str, Entry]] = {}
    for one in entries(document, "differences"):
        place = (text(one, "model_a"), text(one, "site_a"), text(one, "model_b"), text(one, "site_b"))
        rows.setdefault(place, {})[text(one, "measure")] = one
    titles = [text(mapping(measures, name), "title", name) for name in core]
    columns = [Column("of"), Column("less"), *(Column(title) for title in titles)]
    table = Table(
        columns, [_line(place, found, core) for place, found in rows.items()], "Differences", folded=True, where="page"
    )
    return Section("Differences", LEAD, [table]) if rows else None


def _line(place: tuple[str, str, str, str], found: dict[str, Entry], core: list[str]) -> Line:
    model_a, site_a, model_b, site_b = place
    less = site_b if model_a == model_b else f"{named(model_b)} {site_b}"
    cells: list[Cell] = [Cell(less)]
    for name in core:
        one = found.get(name, {})
        ends = numbers(one, "interval")
        cells.append(
            Cell(number(one, "difference"), (ends[0], ends[1]) if ends else None, "not defined at one of the two")
        )
    return Line(f"{named(model_a)} {site_a}", cells)
