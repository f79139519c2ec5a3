"""The column of a table that colours the picture of its vectors."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from headscan.run import BadInput
from headscan.states import StoredSource, VectorSource
from headscan.states.value_columns import ColumnKind, Value, ValueColumn

FEW = 10
"""Whole numbers with no more than so many values are categories."""


@dataclass(frozen=True)
class Colouring:
    """The column that colours a picture.

    Attributes:
        column: its name.
        kind: category, number or date.
        values: its value at each sampled vector; dates as in ISO 8601, None where it is missing.
    """

    column: str
    kind: ColumnKind
    values: list[Value] = field(default_factory=list)


def colour_column(source: object, subject: str, name: str) -> ValueColumn:
    """Return the column of a table of vectors; BadInput where there is none, with those that are.

    Args:
        source: an opened source of any kind.
        subject: its name in messages.
        name: of the column.
    """
    if not isinstance(source, StoredSource):
        raise BadInput(
            f"--colour {name} names a column of a table of vectors, and {subject} is a model."
        )
    columns = source.vectors.columns
    if not columns:
        raise BadInput(
            f"--colour {name} names a column beside the vectors, and {subject} has none: give "
            "a table (.parquet, .arrow, .jsonl, .csv, or a folder of datasets)."
        )
    if name not in columns:
        raise BadInput(
            f"--colour: {subject} has no column '{name}' of texts, numbers or dates; it has: "
            f"{', '.join(columns)}."
        )
    return columns[name]


def colouring(source: VectorSource, name: str, places: Sequence[Sequence[int]]) -> Colouring:
    """Return the values of a column at sampled vectors.

    `places`: window and position of each.
    """
    column = colour_column(source, source.name, name)
    rows = [source.read(window) + position for window, position in places]
    values = column.values(rows)
    kind = column.kind
    if all(value is None for value in values):
        return Colouring(name, kind, values)
    whole = all(value is None or isinstance(value, int) for value in values)
    if kind == "number" and whole and len(set(values)) <= FEW:
        kind = "category"
        values = [None if value is None else str(value) for value in values]
    elif kind == "category" and all(value is None or _is_date(value) for value in values):
        kind = "date"
    return Colouring(name, kind, values)


def _is_date(value: Value) -> bool:
    """Return whether a text is a date, with or without a time, as ISO 8601 writes it."""
    if not isinstance(value, str) or not re.match(r"\d{4}-\d\d-\d\d", value):
        return False
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return False
    return True
