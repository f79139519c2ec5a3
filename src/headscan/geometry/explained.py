"""What a reader must know of every number, and how it is shown: these words travel in the result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from headscan.run.rows import Cell

__all__ = [
    "GROUPS",
    "WITHOUT",
    "WITHOUT_SINKS",
    "Bounds",
    "Cells",
    "Field",
    "Group",
    "MeasureWords",
    "ProbeWords",
    "leading",
    "number",
]

WITHOUT = "_without_first"
"""What the name of a number ends in that leaves position 0 of each window out."""

WITHOUT_SINKS = "_without_sinks"
"""What the name of a number ends in that leaves sink tokens out (headscan.statistics.sinks)."""

Cells = dict[str, Cell]
"""What is said of one site or thing: numbers by name, NAME_interval beside NAME, `notes` where there are any."""


def number(cell: Cell) -> float | None:
    """The number in a cell, None where it holds none."""
    return cell if isinstance(cell, int | float) else None


def leading(row: Mapping[str, object], measure: str) -> str:
    """The column of a measure that leads: of the tokens that are no sinks; of all where the row knows of no sinks.

    >>> leading({"drift": 0.5, "drift_without_sinks": 0.1}, "drift"), leading({"drift": 0.5}, "drift")
    ('drift_without_sinks', 'drift')
    """
    name = measure + WITHOUT_SINKS
    return name if name in row else measure


Bounds = tuple[float | None, float | None]
"""Least and greatest value a number can have; None where there is no such end."""


@dataclass(frozen=True)
class Group:
    """A section of the page: its title and a sentence below it."""

    title: str
    lead: str = ""


GROUPS: dict[str, Group] = {
    "anatomy": Group("Anatomy of the cone", "Who builds it, who takes it away, and what it says."),
    "cones": Group("More about the cone", "Its axis, its angle, and whether a few coordinates make it."),
    "spectra": Group(
        "More about the spectrum", "Other counts of dimensions, and the dimension of the points' neighbourhoods."
    ),
    "norms": Group("More about lengths"),
    "words": Group("Words in context", "What of a vector is the word's, what its context's, and what everyone's."),
    "alignment": Group(
        "Alignment and uniformity", "How the directions spread over the sphere, and what lies close together."
    ),
    "zipf": Group("Zipf's law and its limitations", "What the text's unevenness does to the embedding tables."),
    "head": Group(
        "The head", "The output layer: what it reads, how many directions it uses, where its classes gather."
    ),
    "attention": Group("Attention", "Queries and keys, head by head."),
}
"""The sections in the page's order; a group that is not here comes after them, under its own name."""


def group(name: str) -> Group:
    """The section of a group, made from its name where it is none of headscan's own.

    >>> group("my_family").title
    'My family'
    """
    return GROUPS.get(name) or Group(name.replace("_", " ").capitalize())


def place(name: str) -> int:
    """Where a group stands on the page.

    >>> place("cones"), place("my_family") == len(GROUPS)
    (1, True)
    """
    return [*GROUPS, name].index(name)


@dataclass(frozen=True, kw_only=True)
class MeasureWords:
    """What a measure says of itself.

    Attributes:
        range: least and greatest value. unit, cost, source (literature): in words.
        undefined: for which clouds it has no value. core: in every scan; others where `--measures` names them.
        spectral: it needs the second moment.
        column: the head of its column in the terminal's table, lines parted by a newline; "" for none.
        multiple: whether the page draws it as a small multiple of its own.
        order: where it stands among the measures of its kind, small numbers first.
        docs: its page under docs/measures.
    """

    title: str
    group: str
    sentence: str
    formula: str
    range: Bounds
    source: str
    undefined: str
    unit: str = ""
    cost: str = "O(d) after one pass of O(nd)"
    spectral: bool = False
    core: bool = True
    column: str = ""
    multiple: bool = False
    order: int = 100
    docs: str = ""


@dataclass(frozen=True)
class Field:
    """One number of a probe's rows: what it is in a sentence, its formula, range, unit, and when it is undefined.

    `interval` says why it has none where it has none; `first`: it comes without position 0 of each window, too;
    `plotted`: the page draws it; `percent`: shown as a percentage.
    """

    title: str
    sentence: str
    formula: str = ""
    range: Bounds = (None, None)
    unit: str = ""
    undefined: str = ""
    interval: str = ""
    first: bool = False
    plotted: bool = False
    percent: bool = False


@dataclass(frozen=True, kw_only=True)
class ProbeWords:
    """What a probe says of itself.

    Attributes:
        name: the key of its table in the result. title, sentence, group: for the page; order: its place in the group.
        literature: where it was published. docs: its page under docs/measures. function: what computes it, by its
            dotted name; the probe itself unless said.
        fields: the numbers in its rows. position: what it does about position 0 of each window, in a sentence.
        expensive: left out of `--measures all`. sample: how many sampled vectors of each site it needs.
        picture: how its plotted fields are drawn: by "layers", by attention "heads", by sets of "pairs", or in a section
            of its "own", which shows its rows, too.
    """

    name: str
    title: str
    group: str
    sentence: str
    literature: str
    position: str
    fields: dict[str, Field] = field(default_factory=dict)
    docs: str = ""
    function: str = ""
    sample: int = 0
    expensive: bool = False
    picture: Literal["layers", "heads", "pairs", "own"] = "layers"
    order: int = 100
