"""What the intervals rest on, and how far numbers of so short a text lie off on average: a sentence a model, then a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headscan.report.kit import Cell, Column, Line, Prose, Section, Table, section
from headscan.report.kit.parts import Part
from headscan.report.kit.reading import Entry, entries, mapping, number, text
from headscan.report.kit.words import named
from headscan.report.pages.scan._layers import WITHOUT
from headscan.report.pages.scan._sites import models, of_model

if TYPE_CHECKING:
    from headscan.geometry.result import ScanResult

__all__ = ["certainty"]

LEAD = (
    "Documents are independent of each other; windows of one text that runs on are not, and are counted as that. The bias "
    "is what a finite text does to a number on average: intervals reach further to that side."
)


@section("scan", 98)
def certainty(result: ScanResult) -> Section | None:
    """The effective number of clusters, and the biases of the core measures."""
    document: Entry = result.document
    measures = mapping(document, "measures")
    biased = [name for name in measures if any(f"{name}_bias" in entry for entry in entries(document, "sites"))]
    parts: list[Part] = []
    for model in models(document):
        found = [entry for entry in of_model(entries(document, "sites"), model, None) if entry.get("clusters")]
        if not found:
            continue
        parts.append(Prose(f"{named(model)}: {_rests(found)}{_worst(found, biased, measures)}."))
        columns = [Column("site"), Column("clusters", text=True), Column("in effect")]
        columns += [Column(text(mapping(measures, name), "title", name), group="bias") for name in biased]
        parts.append(Table(columns, [_line(entry, biased) for entry in found], named(model), folded=True, where="page"))
    return Section("What the intervals rest on", LEAD, parts) if parts else None


def _rests(found: list[Entry]) -> str:
    counts = [number(entry, "effective_clusters") or 0.0 for entry in found]
    low, high = round(min(counts)), round(max(counts))
    kinds = " or ".join(dict.fromkeys(text(entry, "clusters") for entry in found))
    return f"intervals rest on {kinds}, in effect {low if low == high else f'{low} to {high}'} independent ones"


def _worst(found: list[Entry], biased: list[str], measures: Entry) -> str:
    """The largest bias of the tokens that are no sinks, as a share of its number."""
    shares = [
        (bias / value, name, text(entry, "site"))
        for entry in found
        for name in biased
        if (bias := number(entry, f"{name}{WITHOUT}_bias")) is not None and (value := number(entry, f"{name}{WITHOUT}"))
    ]
    if not shares:
        return ""
    share, name, site = max(shares, key=lambda one: abs(one[0]))
    title = text(mapping(measures, name), "title", name).lower()
    return f"; the largest bias of a finite text is {share:+.1%} ({title} at {site})".replace("%", " %")


def _line(entry: Entry, biased: list[str]) -> Line:
    cells = [Cell(text(entry, "clusters")), Cell(number(entry, "effective_clusters"))]
    return Line(
        text(entry, "site"), [*cells, *(Cell(number(entry, f"{name}_bias"), None, "not known") for name in biased)]
    )
