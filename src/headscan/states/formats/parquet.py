"""Parquet files, of which a part of a column is unpacked at a time."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow.parquet import ParquetFile

from headscan.run import BadInput
from headscan.states.columns import Table, column_types, table_refusal
from headscan.states.location import Location
from headscan.states.value_columns import class_names
from headscan.states.vectors import FORMATS, StateFormat, Vectors

UNPACKED_BYTES = 32 * 2**20
"""So many bytes of a column are unpacked at a time."""


@FORMATS.register("parquet")
class ParquetFormat(StateFormat):
    title = "Parquet"
    tried = "pyarrow"
    sentence = (
        "Every column of lists of numbers is a site, a row a vector (or, of lists of lists, a "
        "window); `token_ids` and `documents` beside them; a file, or a folder of files."
    )

    def recognises(self, location: Location) -> bool:
        if location.suffix == ".parquet":
            return True
        return location.is_folder and bool(location.files(".parquet"))

    def read(self, location: Location, field: str | None) -> Vectors:
        files = location.files(".parquet") if location.is_folder else [location]
        return Vectors.joined(location.name, [_parquet(file, field) for file in files])


def _parquet(location: Location, field: str | None) -> Vectors:
    try:
        file = ParquetFile(location.open() if location.remote else location.path)
    except (pa.ArrowException, OSError, ValueError) as error:  # a column's name may be no UTF-8
        raise table_refusal(location, "Parquet", error) from error
    types = column_types(location, file.schema_arrow, field)
    columns = _Columns(file, location.path)
    classes = class_names(file.schema_arrow)
    table = Table(location.path, types, file.metadata.num_rows, columns.read, classes)
    return table.vectors(field)


@dataclass(frozen=True)
class _OpenColumn:
    """A column that is being read.

    Attributes:
        batches: of its rows that are not unpacked yet.
        start: the first row that is unpacked.
        values: the unpacked rows.
    """

    batches: Iterator[Any]
    start: int
    values: Any


class _Columns:
    """Reads rows of columns in the order of the file, a part of each column at a time.

    A reader that goes back begins its row group again.
    """

    def __init__(self, file: Any, name: str) -> None:
        self.file = file
        self.name = name
        self.metadata = file.metadata
        sizes = []
        for number in range(self.metadata.num_row_groups):
            sizes.append(self.metadata.row_group(number).num_rows)
        self.starts = [0, *np.cumsum(sizes).tolist()]  # of the row groups
        self._open: dict[str, _OpenColumn] = {}

    def read(self, column: str, first: int, last: int) -> Any:
        """Return the values of a column in the rows first ... last − 1."""
        try:
            if column not in self._open or first < self._open[column].start:
                self._open[column] = self._begin(column, first)
            unpacked = _unpacked_until(self._open[column], first, last)
        except StopIteration:
            raise BadInput(f"{self.name} has fewer rows than it says.") from None
        except (pa.ArrowException, OSError) as error:
            reason = str(error).splitlines()[0][:160]
            raise BadInput(f"{self.name} cannot be read to its end: {reason}.") from error
        values = unpacked.values.slice(first - unpacked.start)
        self._open[column] = _OpenColumn(unpacked.batches, first, values)
        return values.slice(0, last - first)

    def _begin(self, column: str, first: int) -> _OpenColumn:
        """Open a column at the row group that has row `first`."""
        number = 0
        while self.starts[number + 1] <= first:
            number += 1
        # A row is read first: Arrow 26 refuses damaged statistics there, and where they are asked
        # for it ends the process.
        next(self.file.iter_batches(batch_size=1, row_groups=[number], columns=[column]), None)
        groups = list(range(number, self.metadata.num_row_groups))
        batches = self.file.iter_batches(
            batch_size=self._batch_size(column, number), row_groups=groups, columns=[column]
        )
        kind = self.file.schema_arrow.field(column).type
        return _OpenColumn(batches, self.starts[number], pa.chunked_array([], type=kind))

    def _batch_size(self, column: str, number: int) -> int:
        """Return how many rows of a column are unpacked at a time, by its size in a row group."""
        group = self.metadata.row_group(number)
        size = 0
        for index in range(self.metadata.num_columns):
            path = self.metadata.schema.column(index).path
            if path.split(".")[0] == column:
                part = group.column(index)
                # A value that many rows share is in the file once, and in each row in memory.
                size += max(part.total_uncompressed_size, 8 * part.num_values)
        row_bytes = size / max(1, group.num_rows)
        return max(1, int(UNPACKED_BYTES / max(1.0, row_bytes)))


def _unpacked_until(column: _OpenColumn, first: int, last: int) -> _OpenColumn:
    """Return a column unpacked up to row `last`; batches before row `first` are let go."""
    start = column.start
    values = column.values
    while start + len(values) < last:
        if start + len(values) <= first:
            start += len(values)
            values = values.slice(0, 0)
        batch = next(column.batches).column(0)
        values = pa.chunked_array([*values.chunks, batch], type=values.type)
    return _OpenColumn(column.batches, start, values)
