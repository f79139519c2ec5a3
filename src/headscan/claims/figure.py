"""The figures of the documents, redrawn from runs of our own beside what was published."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from headscan.claims.protocol import DocumentName
from headscan.run import Registry

__all__ = ["FIGURES", "Curve", "FigureMaker", "RedrawnFigure", "figure", "redrawn"]


@dataclass(frozen=True)
class Curve:
    """One line (or row of bars) of a figure: its name, and numbers of the same count; `at` are numbers or names."""

    name: str
    at: list[float] | list[str]
    values: list[float]


@dataclass(frozen=True, kw_only=True)
class RedrawnFigure:
    """A figure of a document from our own runs.

    Attributes:
        id, document, place, title: which.
        published: what the document shows there: its values, or its shape.
        across, up: what the axes are; log: "", "x", "y" or "xy".
        curves: ours; none where it is not redrawn, and `why_not` says why.
    """

    id: str
    document: DocumentName
    place: str
    title: str
    published: str
    across: str = ""
    up: str = ""
    log: Literal["", "x", "y", "xy"] = ""
    curves: list[Curve] = field(default_factory=list)
    why_not: str = ""


Maker: TypeAlias = Callable[[int], list[Curve]]


@dataclass(frozen=True)
class FigureMaker:
    """What a figure shows, and the function that makes its curves from a master seed (None: it is not redrawn)."""

    shown: RedrawnFigure
    make: Maker | None


FIGURES: Registry[FigureMaker] = Registry("figure", "headscan.claims.figures")
"""The figures of all documents, a module a document; plug-ins add their own by `figure`."""


def figure(shown: RedrawnFigure) -> Callable[[Maker], Maker]:
    """Enter the decorated function as what redraws a figure."""

    def enter(make: Maker) -> Maker:
        FIGURES.add(shown.id, FigureMaker(shown, make))
        return make

    return enter


def redrawn(name: str, seed: int) -> RedrawnFigure:
    """One figure, its curves made now."""
    from dataclasses import replace

    found = FIGURES[name]
    return found.shown if found.make is None else replace(found.shown, curves=found.make(seed))
