"""The columns of a table that stand beside its vectors: categories, numbers and dates."""

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from itertools import accumulate
from typing import Any, Literal, Protocol

import numpy as np
import pyarrow as pa

from headscan.run import BadInput

ColumnKind = Literal["category", "number", "date"]
Value = str | int | float | None

LONGEST_TEXT = 200
"""Longer texts are cut to so many characters."""

_KINDS: dict[str, ColumnKind] = {
    "is_boolean": "category",
    "is_string": "category",
    "is_large_string": "category",
    "is_integer": "number",
    "is_floating": "number",
    "is_decimal": "number",
    "is_date": "date",
    "is_timestamp": "date",
}


class ValueColumn(Protocol):
    """A column with a value for each vector.

    `kind`: category (texts, yes or no), number or date.
    """

    @property
    def kind(self) -> ColumnKind: ...

    def values(self, rows: Sequence[int]) -> list[Value]:
        """Return the values at rows of vectors, in their order.

        Dates are texts of ISO 8601; None where a value is missing, or no finite number.
        """


@dataclass(frozen=True)
class TableColumn:
    """A column of a table whose cells count for `rows_a_cell` vectors.

    Attributes:
        read: returns the cells first ... last − 1 of a column as an Arrow array.
        classes: the names that whole numbers stand for; empty where they are numbers.
    """

    read: Any
    column: str
    kind: ColumnKind
    rows_a_cell: int
    classes: Sequence[str] = ()

    def values(self, rows: Sequence[int]) -> list[Value]:
        cells = [row // self.rows_a_cell for row in rows]
        value_of = {}
        for cell in sorted(set(cells)):  # tables are read in their order
            try:
                (value,) = self.read(self.column, cell, cell + 1).to_pylist()
            except (UnicodeDecodeError, ValueError, pa.ArrowException) as error:
                raise BadInput(f"Column {self.column} cannot be read: {error}.") from error
            value_of[cell] = _plain(value, self.classes)
        return [value_of[cell] for cell in cells]


@dataclass(frozen=True)
class JoinedColumn:
    """The same column of several tables, one after the other; `counts`: their vectors."""

    parts: Sequence[ValueColumn]
    counts: Sequence[int]

    @property
    def kind(self) -> ColumnKind:
        return self.parts[0].kind

    def values(self, rows: Sequence[int]) -> list[Value]:
        starts = [0, *accumulate(self.counts)]
        part_of_row = np.searchsorted(starts, rows, side="right") - 1
        values: list[Value] = [None] * len(rows)
        for number in np.unique(part_of_row).tolist():
            places = np.flatnonzero(part_of_row == number).tolist()
            in_part = [rows[place] - starts[number] for place in places]
            for place, value in zip(places, self.parts[number].values(in_part), strict=True):
                values[place] = value
        return values


def value_kind(kind: Any) -> ColumnKind | None:
    """Return what a column of an Arrow type holds; None where it has no single value a row."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    for test, name in _KINDS.items():
        if getattr(pa.types, test)(kind):
            return name
    return None


def joined_columns(
    columns: Sequence[Mapping[str, ValueColumn]], counts: Sequence[int]
) -> dict[str, ValueColumn]:
    """Return the columns that all of several tables have, of the same kind."""
    joined: dict[str, ValueColumn] = {}
    for name, first in columns[0].items():
        parts = [part[name] for part in columns if name in part]
        if len(parts) == len(columns) and {part.kind for part in parts} == {first.kind}:
            joined[name] = JoinedColumn(parts, counts)
    return joined


def class_names(schema: Any) -> dict[str, list[str]]:
    """Return the names of classes by column, as `datasets` writes them beside a table."""
    names = {}
    with suppress(KeyError, TypeError, ValueError, AttributeError):
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        for column, feature in features.items():
            if isinstance(feature, dict) and feature.get("_type") == "ClassLabel":
                names[column] = [str(name) for name in feature["names"]]
    return names


def _plain(value: Any, classes: Sequence[str]) -> Value:
    """Return a cell as JSON holds it."""
    if value is None or isinstance(value, str):
        return value if value is None else value[:LONGEST_TEXT]
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, int):
        return classes[value] if 0 <= value < len(classes) else value
    number = float(value) if isinstance(value, Decimal) else value
    return float(number) if math.isfinite(number) else None
