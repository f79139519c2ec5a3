"""The parts that every page is made of, and the ways to show them: HTML, terminal, notebook, paper.

A page is a value (`Page` of `Section`s of `Figure`s, `Table`s, ...; see `parts`), made from a
result by one function for its kind (`page`) and one for each section (`section`); a plug-in adds a
section to any page by the same decorator. Tables take titles and explanations from the `Term`s of
the fields they show (`table`). The kit itself adds findings, protocol, glossary and data
(`provenance`).
"""

from headscan.report.kit import palette
from headscan.report.kit.parts import (
    Cell,
    Facts,
    Figure,
    Head,
    Line,
    Panels,
    Prose,
    Raw,
    Section,
    Table,
    table,
)
from headscan.report.kit.register import page, section
from headscan.run.vocabulary import Term

__all__ = [
    "Cell",
    "Facts",
    "Figure",
    "Head",
    "Line",
    "Panels",
    "Prose",
    "Raw",
    "Section",
    "Table",
    "Term",
    "page",
    "palette",
    "section",
    "table",
]
