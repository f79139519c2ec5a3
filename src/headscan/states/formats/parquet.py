"""Parquet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import pyarrow as pa
from pyarrow.parquet import ParquetFile

from headscan.run import BadInput
from headscan.states.columns import table_vectors
from headscan.states.format import FORMATS, StateFormat
from headscan.states.location import Location
from headscan.states.vectors import Vectors

__all__ = ["ParquetFormat"]

MEMORY = 32 * 2**20  # bytes of a column that are unpacked at a time


@FORMATS.register("parquet")
class ParquetFormat(StateFormat):
    """Columns of lists of numbers."""

    title: ClassVar[str] = "Parquet"
    sentence: ClassVar[str] = (
        "Every column of lists of numbers is a site, a row a vector (or, of lists of lists, a window); `token_ids` and "
        "`documents` beside them; a file, or a folder of files."
    )
    tried: ClassVar[str] = "pyarrow"

    def recognises(self, place: Location) -> bool:
        """By its ending, or those of a folder's files."""
        return place.suffix == ".parquet" or (place.is_folder and bool(place.files(".parquet")))

    def read(self, place: Location, field: str | None) -> Vectors:
        """A site a column."""
        files = place.files(".parquet") if place.is_folder else [place]
        return Vectors.joined(place.name, [_file(file, field) for file in files])


def _file(place: Location, field: str | None) -> Vectors:
    try:
        file = ParquetFile(place.path if not place.remote else place.open())
    except (pa.ArrowException, OSError) as error:
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BadInput(f"{place.path} is no Parquet file, or is truncated: {said[:160].rstrip('.')}.") from error
    schema = {one.name: one.type for one in file.schema_arrow}
    reader = _Columns(file, place.path)
    return table_vectors(place.path, schema, file.metadata.num_rows, reader.read, field)


class _Columns:
    """Rows of columns in the order of the file, for which no more than some of each column is unpacked; a reader that goes
    back begins its row group anew."""

    def __init__(self, file: Any, name: str) -> None:
        self.file, self.name = file, name
        self.starts = [0]
        for number in range(file.metadata.num_row_groups):
            self.starts.append(self.starts[-1] + file.metadata.row_group(number).num_rows)
        self._open: dict[str, tuple[Iterator[Any], int, Any]] = {}  # batches to come, first row held, what is held

    def _begin(self, column: str, first: int) -> tuple[Iterator[Any], int, Any]:
        group = next(number for number, start in enumerate(self.starts) if self.starts[number + 1] > first)
        groups = list(range(group, self.file.metadata.num_row_groups))
        meta = self.file.metadata
        size = sum(
            meta.row_group(group).column(k).total_uncompressed_size
            for k in range(meta.num_columns)
            if meta.row_group(group).column(k).path_in_schema.split(".")[0] == column
        )
        rows = max(1, int(MEMORY / max(1.0, size / max(1, meta.row_group(group).num_rows))))
        batches = self.file.iter_batches(batch_size=rows, row_groups=groups, columns=[column])
        return batches, self.starts[group], pa.chunked_array([], type=self.file.schema_arrow.field(column).type)

    def read(self, column: str, first: int, last: int) -> Any:
        """The values of a column."""
        if column not in self._open or first < self._open[column][1]:
            self._open[column] = self._begin(column, first)
        batches, start, held = self._open[column]
        try:
            while start + len(held) < last:
                if start + len(held) <= first:  # nothing of what is held is needed
                    start, held = start + len(held), held.slice(0, 0)
                held = pa.chunked_array([*held.chunks, next(batches).column(0)], type=held.type)
        except StopIteration:
            raise BadInput(f"{self.name} has fewer rows than it says.") from None
        except (pa.ArrowException, OSError) as error:
            raise BadInput(f"{self.name} cannot be read to its end: {str(error).splitlines()[0][:160]}.") from error
        kept = held.slice(first - start)
        self._open[column] = batches, first, kept
        return kept.slice(0, last - first)
