"""The parts every page is made of, and the four ways to show them: HTML, terminal, notebook, one figure.

A page is a value (`Page` of `Section`s of `Figure`s, `Table`s, ...; see `parts`), made from a result by one function a kind
(`page`) and one a section (`section`); a plug-in adds a section to any page by the same decorator. The kit itself adds
findings, protocol, glossary and the data to take away.
"""

from headscan.report.kit import palette
from headscan.report.kit.parts import Cell, Column, Facts, Figure, Head, Line, Panels, Prose, Raw, Section, Table, Word
from headscan.report.kit.register import page, section

__all__ = [
    "Cell",
    "Column",
    "Facts",
    "Figure",
    "Head",
    "Line",
    "Panels",
    "Prose",
    "Raw",
    "Section",
    "Table",
    "Word",
    "page",
    "palette",
    "section",
]
