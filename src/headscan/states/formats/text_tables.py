"""Tables that are written as text: JSON lines and CSV, with vectors in lists."""

import json
from abc import abstractmethod
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv
from pyarrow import json as json_lines

from headscan.run import BadInput
from headscan.run.memory import unpackable
from headscan.states.columns import Table, column_types, table_refusal
from headscan.states.location import Location
from headscan.states.vectors import FORMATS, StateFormat, Vectors

BLOCK_BYTES = 2**24
"""A row has at most so many bytes."""


class TextTable(StateFormat):
    """A table that is written as text and read into memory."""

    def read(self, location: Location, field: str | None) -> Vectors:
        if location.size > unpackable():
            raise BadInput(
                f"{location.path} has {location.size:,} bytes, more than half of the memory that "
                "is free: write it as Parquet."
            )
        content = pa.BufferReader(location.bytes(0, location.size))
        try:
            table = self.table(content, location)
        except (pa.ArrowException, UnicodeDecodeError) as error:
            raise table_refusal(location, self.title, error) from error

        def cells(column: str, first: int, last: int) -> Any:
            return table.column(column).slice(first, last - first)

        types = column_types(location, table.schema, field)
        return Table(location.path, types, table.num_rows, cells).vectors(field)

    @abstractmethod
    def table(self, content: Any, location: Location) -> Any:
        """Return the Arrow table of a file's content."""


@FORMATS.register("jsonl")
class JsonLinesFormat(TextTable):
    title = "JSON lines"
    tried = "pyarrow"
    sentence = "As Parquet, a row a line; read into memory."
    endings = (".jsonl", ".ndjson")

    def table(self, content: Any, _location: Location) -> Any:
        return json_lines.read_json(content, json_lines.ReadOptions(block_size=BLOCK_BYTES))


@FORMATS.register("csv")
class CsvFormat(TextTable):
    title = "CSV"
    tried = "pandas"
    sentence = (
        "As Parquet; a vector is written as a list, `[0.1, 0.2]`, in one column, as pandas "
        "writes it; read into memory."
    )
    endings = (".csv", ".tsv")

    def table(self, content: Any, location: Location) -> Any:
        options = csv.ParseOptions(
            delimiter="\t" if location.suffix == ".tsv" else ",", newlines_in_values=True
        )
        table = csv.read_csv(
            content,
            csv.ReadOptions(block_size=BLOCK_BYTES),
            options,
            csv.ConvertOptions(strings_can_be_null=True),
        )
        for number, column in enumerate(table.column_names):
            values = table.column(number)
            if pa.types.is_string(values.type) and _is_list(values):
                table = table.set_column(number, column, _lists(values, location, column))
        return table


def _is_list(values: Any) -> bool:
    """Return whether the first text of a column is written as a list of numbers."""
    return len(values) > 0 and str(values[0].as_py()).lstrip().startswith("[")


def _lists(values: Any, location: Location, column: str) -> Any:
    """Return lists of numbers that are written as texts; BadInput where one is not."""
    rows = []
    for number, text in enumerate(values.to_pylist(), 1):
        try:
            row = np.asarray(json.loads(text or "null"), dtype=np.float64)
        except (ValueError, TypeError):
            row = np.zeros(0)
        if row.ndim != 1 or not len(row):
            raise BadInput(
                f"{location.path}, column {column}: row {number} is no list of numbers as in "
                f"[0.1, 0.2]: {str(text)[:60]!r}."
            )
        rows.append(row)
    return pa.array(rows, type=pa.list_(pa.float64()))
