"""Tables whose columns are lists of numbers: Arrow, Feather, Parquet, and the folders of the
library `datasets`.
"""

import re
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from pyarrow.parquet import ParquetFile
from torch import Tensor

from headscan.run import BadInput
from headscan.run.memory import unpackable
from headscan.states.location import Location, site_of_hook
from headscan.states.vectors import (
    DOCUMENTS,
    FORMATS,
    TOKENS,
    Rows,
    StateFormat,
    Vectors,
    stored_dtype,
)

Reader = Callable[[str, int, int], Any]
"""The values of a column in the rows first ... last − 1 of a table, as an Arrow array."""


@dataclass(frozen=True)
class Shape:
    """A column's cells: vectors of `width` numbers, `window` of them where a cell is a list of
    vectors; a cell that is no list is a vector of width 1.
    """

    width: int
    window: int | None
    dtype: torch.dtype


class ColumnRows:
    """A column as rows: a cell is a vector, or a window of them; or each cell's number stands for
    `repeat` rows.
    """

    def __init__(
        self, name: str, read: Reader, cells: int, column: str, shape: Shape, repeat: int = 1
    ) -> None:
        self.name = name
        self.column = column
        self._read = read
        self.shape = shape
        self.repeat = repeat
        self.each = (shape.window or 1) * repeat
        self.count = cells * self.each
        self.width = shape.width
        self.dtype = shape.dtype

    def read(self, first: int, last: int) -> Tensor:
        begin = first // self.each
        end = -(-last // self.each)
        values = _numbers(
            self._read(self.column, begin, end), self.shape, f"{self.name}, column {self.column}"
        )
        rows = torch.from_numpy(values).reshape(-1, self.width)
        if self.repeat > 1:
            rows = rows.repeat_interleave(self.repeat, 0)
        return rows[first - begin * self.each : last - begin * self.each]


def table_vectors(
    name: str, schema: Mapping[str, Any], cells: int, read: Reader, field: str | None
) -> Vectors:
    """The vectors of a table's columns: every column of lists of numbers is a site, or those that
    `field` names.

    `schema` has the Arrow type of each column, `cells` is the number of rows. Raises BadInput where
    there is no such column, or none of vectors; a value is missing; lists differ in length.
    """
    wanted = None if field is None else [column.strip() for column in field.split(",")]
    for column in wanted or ():
        if column not in schema:
            raise BadInput(f"{name} has no column '{column}'; it has: {', '.join(schema)}.")
    if not cells:
        raise BadInput(f"{name} has no rows.")

    chosen = [
        column
        for column, kind in schema.items()
        if (column in wanted if wanted else _is_vectors(kind))
    ]
    shapes = {
        column: _shape(name, schema, read, column)
        for column in chosen
        if column not in TOKENS + DOCUMENTS
    }
    if not shapes:
        kinds = ", ".join(f"{column} ({kind})" for column, kind in list(schema.items())[:8])
        raise BadInput(f"{name} has no column of vectors; it has: {kinds}.")
    window = next(iter(shapes.values())).window
    if any(shape.window != window for shape in shapes.values()):
        raise BadInput(
            f"{name} has columns of vectors and of windows: choose one kind with --field."
        )

    def beside(names: tuple[str, ...]) -> Rows | None:
        column = next((column for column in reversed(names) if column in schema), None)
        if column is None:
            return None
        shape = _shape(name, schema, read, column)
        each = window or 1
        if shape.dtype.is_floating_point:
            raise BadInput(f"{name}, column {column} holds fractions in place of whole numbers.")
        if shape.width == each and _is_list(_storage(schema[column])):
            return ColumnRows(name, read, cells, column, replace(shape, width=1, window=each))
        return ColumnRows(name, read, cells, column, shape, each)

    sites = {
        site_of_hook(column): ColumnRows(name, read, cells, column, shape)
        for column, shape in shapes.items()
    }
    return Vectors(name, sites, ids=beside(TOKENS), documents=beside(DOCUMENTS), window=window)


def _storage(kind: Any) -> Any:
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _is_list(kind: Any) -> bool:
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _is_vectors(kind: Any) -> bool:
    """Whether a type is lists of fractions, or of lists of them."""
    kind = _storage(kind)
    depth = 0
    while _is_list(kind):
        kind = _storage(kind.value_type)
        depth = depth + 1
    return 0 < depth <= 2 and bool(pa.types.is_floating(kind))


def _shape(table: str, schema: Mapping[str, Any], read: Reader, column: str) -> Shape:
    """The shape of a column's cells, from its type and its first cell."""
    kind = _storage(schema[column])
    values = _plain(read(column, 0, 1))
    sizes = list[int]()
    name = f"{table}, column {column}"
    while _is_list(kind):
        if values.null_count or not len(values):
            raise BadInput(f"{name}: the first value is missing.")
        sizes.append(kind.list_size if pa.types.is_fixed_size_list(kind) else len(values[0]))
        kind = _storage(kind.value_type)
        values = _plain(values.flatten())
    if len(sizes) > 2 or not (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
        raise BadInput(
            f"{name} holds {kind} in {len(sizes)} levels of lists, which are no vectors."
        )
    dtype = stored_dtype(name, kind, kind.to_pandas_dtype())
    return Shape(sizes[-1] if sizes else 1, sizes[0] if len(sizes) == 2 else None, dtype)


def _plain(values: Any) -> Any:
    """An array that is neither chunked nor of an extension type."""
    if isinstance(values, pa.ChunkedArray):
        values = values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()
    return values.storage if isinstance(values, pa.ExtensionArray) else values


def _numbers(values: Any, shape: Shape, name: str) -> np.ndarray[Any, Any]:
    """The numbers of cells, one after the other; no copy where Arrow holds them so."""
    values, many = _plain(values), len(values)
    for size in [shape.window, shape.width] if shape.window else [shape.width]:
        if not _is_list(values.type):
            break
        if values.null_count:
            raise BadInput(f"{name}: a value is missing (null).")
        if not pa.types.is_fixed_size_list(values.type) and len(values):
            lengths = np.diff(values.offsets.to_numpy())
            if (lengths != size).any():
                raise BadInput(
                    f"{name} holds lists of different lengths: {size} and "
                    f"{int(lengths[lengths != size][0])}."
                )
        values = _plain(values.flatten())
        many = many * size
    if values.null_count or len(values) != many:
        raise BadInput(f"{name}: a number is missing (null).")
    numbers: np.ndarray[Any, Any] = values.to_numpy(zero_copy_only=False)
    return numbers if numbers.flags.writeable else numbers.copy()


def _refusal(place: Location, kind: str, error: BaseException) -> BadInput:
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return BadInput(f"{place.path} is no {kind} file, or is truncated: {reason[:160].rstrip('.')}.")


def _types(place: Location, schema: Any) -> dict[str, Any]:
    """The type of each column; BadInput where two have the same name."""
    try:
        types = {one.name: one.type for one in schema}
    except UnicodeDecodeError as error:
        raise _refusal(place, "table", error) from None
    if len(types) < len(schema):
        raise BadInput(
            f"{place.path} has several columns of the same name: {', '.join(schema.names)}."
        )
    return types


@FORMATS.register("arrow")
class ArrowFormat(StateFormat):
    title = "Arrow and Feather"
    tried = "pyarrow"
    sentence = (
        "As Parquet: every column of lists of numbers is a site; local files are mapped, not "
        "loaded."
    )
    endings = (".arrow", ".feather")

    def read(self, place: Location, field: str | None) -> Vectors:
        return _arrow(place, field)


def _unpacked_size(message: Any) -> int:
    """Bytes to which the buffers of a packed batch or dictionary unpack, as it says itself (Arrow's
    Message.fbs).
    """
    data = memoryview(message.metadata)
    body = memoryview(message.body)

    def number(kind: str, at: int) -> int:
        return int(struct.unpack_from(kind, data, at)[0])

    def child(
        table: int, index: int
    ) -> int:  # where an entry of a flatbuffer's table leads; 0 where it has none
        entries = table - number("<i", table)
        place = (
            number("<H", entries + 4 + 2 * index) if 4 + 2 * index < number("<H", entries) else 0
        )
        return place and table + place + number("<I", table + place)

    header = child(number("<I", 0), 2)
    batch = child(header, 1) if message.type == "dictionary" else header
    buffers = child(batch, 2)
    places = struct.iter_unpack("<qq", data[buffers + 4 : buffers + 4 + 16 * number("<I", buffers)])
    return (
        sum(max(0, *struct.unpack_from("<q", body, place)) for place, size in places if size)
        if child(batch, 3)
        else 0
    )


def _whole(source: Any, name: str, *, is_file: bool) -> Any:
    """The table of an Arrow file or stream, mapped where it is not packed; BadInput where it says
    it unpacks to too much.
    """
    room = unpackable()
    size = 0
    source.seek(8 * is_file)  # a file is a stream, too, between a head and a foot
    with suppress(pa.ArrowException, OSError, struct.error):  # who reads it says what is damaged
        for message in pa.ipc.MessageReader.open_stream(source):
            size += _unpacked_size(message) if message.type in ("record batch", "dictionary") else 0
    if size > room:
        raise BadInput(
            f"{name} unpacks to more than {room:,} bytes, half of the memory that is free: write "
            "it uncompressed."
        )
    source.seek(0)
    return (pa.ipc.open_file if is_file else pa.ipc.open_stream)(source).read_all()


def _arrow(place: Location, field: str | None) -> Vectors:
    try:
        source = (
            pa.memory_map(place.path)
            if not place.remote
            else pa.BufferReader(place.bytes(0, place.size))
        )
        table = _whole(source, place.path, is_file=place.bytes(0, 6) == b"ARROW1")
    except (pa.ArrowException, OSError) as error:
        raise _refusal(place, "Arrow", error) from error

    def read(column: str, first: int, last: int) -> Any:
        values = table.column(column).slice(first, last - first)
        try:
            # pyarrow believes offsets, and aborts the process where they lead nowhere
            values.validate(full=True)
        except pa.ArrowInvalid as error:
            raise _refusal(place, "Arrow", error) from error
        return values

    return table_vectors(place.path, _types(place, table.schema), table.num_rows, read, field)


@FORMATS.register("datasets")
class DatasetsFormat(StateFormat):
    title = "`datasets` folders, SAELens' activations"
    tried = "datasets, SAELens"
    sentence = (
        "What `Dataset.save_to_disk` writes, also in folders shard_0, shard_1, ...; columns that "
        "are named by hooks of TransformerLens get headscan's names."
    )
    first = 1

    def recognises(self, place: Location) -> bool:
        return place.is_folder and ((place / "dataset_dict.json").exists or bool(_shards(place)))

    def read(self, place: Location, field: str | None) -> Vectors:
        if (place / "dataset_dict.json").exists:
            splits = (place / "dataset_dict.json").json().get("splits")
            if not isinstance(splits, list) or len(splits) != 1:
                raise BadInput(
                    f"{place.path} has several splits: name the folder of one ({splits})."
                )
            place = place.inside(str(splits[0]))
        files = [file for shard in _shards(place) for file in _data(shard)]
        return Vectors.joined(place.name, [_arrow(file, field) for file in files])


def _shards(place: Location) -> list[Location]:
    """The folder itself, or its shards in their order."""
    if (place / "state.json").exists and (place / "dataset_info.json").exists:
        return [place]
    matches = (
        re.search(r"/(shard_(\d+))/state\.json$", file.path) for file in place.files("state.json")
    )
    numbers = {match[1]: int(match[2]) for match in matches if match}
    return [place / name for name in sorted(numbers, key=numbers.__getitem__)]


def _data(place: Location) -> list[Location]:
    named = (place / "state.json").json().get("_data_files")
    named = named if isinstance(named, list) else []
    files = [
        str(file["filename"]) for file in named if isinstance(file, dict) and "filename" in file
    ]
    if not files:
        raise BadInput(f"{place.path}/state.json names no data files.")
    for name in files:
        if not place.inside(name).exists:
            raise BadInput(f"{place.path} is not whole: {name} is missing.")
    return [place / name for name in files]


MEMORY = 32 * 2**20  # bytes of a column that are unpacked at a time


@FORMATS.register("parquet")
class ParquetFormat(StateFormat):
    title = "Parquet"
    tried = "pyarrow"
    sentence = (
        "Every column of lists of numbers is a site, a row a vector (or, of lists of lists, a "
        "window); `token_ids` and `documents` beside them; a file, or a folder of files."
    )

    def recognises(self, place: Location) -> bool:
        return place.suffix == ".parquet" or (place.is_folder and bool(place.files(".parquet")))

    def read(self, place: Location, field: str | None) -> Vectors:
        files = place.files(".parquet") if place.is_folder else [place]
        return Vectors.joined(place.name, [_parquet(file, field) for file in files])


def _parquet(place: Location, field: str | None) -> Vectors:
    try:
        file = ParquetFile(place.path if not place.remote else place.open())
    except (pa.ArrowException, OSError, ValueError) as error:  # a column's name may be no UTF-8
        raise _refusal(place, "Parquet", error) from error
    types = _types(place, file.schema_arrow)
    return table_vectors(
        place.path, types, file.metadata.num_rows, _Columns(file, place.path).read, field
    )


class _Columns:
    """Rows of columns in the order of the file, for which no more than some of each column is
    unpacked; a reader that goes back begins its row group anew.
    """

    def __init__(self, file: Any, name: str) -> None:
        self.file = file
        self.name = name
        self.meta = file.metadata
        groups = [
            self.meta.row_group(number).num_rows for number in range(self.meta.num_row_groups)
        ]
        self.starts = [0, *np.cumsum(groups).tolist()]
        self._open: dict[
            str, tuple[Iterator[Any], int, Any]
        ] = {}  # batches to come, first row held, what is held

    def _begin(self, column: str, first: int) -> tuple[Iterator[Any], int, Any]:
        number = next(
            number for number in range(len(self.starts)) if self.starts[number + 1] > first
        )
        group = self.meta.row_group(number)
        names = [
            self.meta.schema.column(k).path.split(".")[0] for k in range(self.meta.num_columns)
        ]
        # A row is read first: Arrow 26 refuses damaged statistics there, and where they are asked
        # for it ends the process.
        next(self.file.iter_batches(batch_size=1, row_groups=[number], columns=[column]), None)
        own = [group.column(k) for k, name in enumerate(names) if name == column]
        # What is the same in many rows is kept once in the file, and in each row here.
        size = sum(max(part.total_uncompressed_size, 8 * part.num_values) for part in own)
        rows = max(1, int(MEMORY / max(1.0, size / max(1, group.num_rows))))
        groups = list(range(number, self.meta.num_row_groups))
        batches = self.file.iter_batches(batch_size=rows, row_groups=groups, columns=[column])
        return (
            batches,
            self.starts[number],
            pa.chunked_array([], type=self.file.schema_arrow.field(column).type),
        )

    def read(self, column: str, first: int, last: int) -> Any:
        try:
            if column not in self._open or first < self._open[column][1]:
                self._open[column] = self._begin(column, first)
            batches, start, held = self._open[column]
            while start + len(held) < last:
                if start + len(held) <= first:  # nothing of what is held is needed
                    start = start + len(held)
                    held = held.slice(0, 0)
                held = pa.chunked_array([*held.chunks, next(batches).column(0)], type=held.type)
        except StopIteration:
            raise BadInput(f"{self.name} has fewer rows than it says.") from None
        except (pa.ArrowException, OSError) as error:
            raise BadInput(
                f"{self.name} cannot be read to its end: {str(error).splitlines()[0][:160]}."
            ) from error
        kept = held.slice(first - start)
        self._open[column] = batches, first, kept
        return kept.slice(0, last - first)
