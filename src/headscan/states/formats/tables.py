"""Arrow files, and the folders that the library `datasets` makes of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import torch
from pyarrow.parquet import ParquetFile
from torch import Tensor

from headscan.run import BadInput
from headscan.states.location import Location, site_of_hook
from headscan.states.vectors import DOCUMENTS, DTYPES, FORMATS, TOKENS, Rows, StateFormat, Vectors

# ---- Columns of tables as rows: Arrow lists and fixed-size lists of numbers, of one level or two.

Reader = Callable[[str, int, int], Any]
"""The values of a column in the rows first ... last − 1 of a table, as an Arrow array."""


@dataclass(frozen=True)
class Shape:
    """A column's cells: vectors of `width` numbers, `window` of them where a cell is a list of vectors; `numbers` of one
    where it is no list."""

    width: int
    window: int | None
    dtype: torch.dtype

    @property
    def each(self) -> int:
        return self.window or 1


class ColumnRows:
    """A column of a table as rows: a cell is a vector, or a window of them."""

    def __init__(self, name: str, column: str, read: Reader, cells: int, shape: Shape) -> None:
        self.name, self.column, self._read, self.shape = name, column, read, shape
        self.count, self.width, self.dtype = cells * shape.each, shape.width, shape.dtype

    def read(self, first: int, last: int) -> Tensor:
        """See `Rows`."""
        each = self.shape.each
        cells = first // each, -(-last // each)
        values = numbers_of(self._read(self.column, *cells), self.shape, f"{self.name}, column {self.column}")
        rows = torch.from_numpy(values).reshape(-1, self.width)
        return rows[first - cells[0] * each : last - cells[0] * each]


class TableRows:
    """A column of one number a cell (token ids, documents) as rows of width 1; each stands for `each` rows."""

    def __init__(self, rows: ColumnRows, each: int) -> None:
        self.rows, self.each = rows, each
        self.count, self.width, self.dtype = rows.count * each, 1, torch.int64

    def read(self, first: int, last: int) -> Tensor:
        """See `Rows`."""
        cells = first // self.each, -(-last // self.each)
        found = self.rows.read(*cells).long().repeat_interleave(self.each, 0)
        return found[first - cells[0] * self.each : last - cells[0] * self.each]


def table_vectors(
    name: str, schema: Mapping[str, Any], cells: int, read: Reader, field: str | None, *, notes: Sequence[str] = ()
) -> Vectors:
    """The vectors of a table's columns: every column of lists of numbers is a site, or those that `field` names.

    Args:
        name: of the table, in sentences. schema: the Arrow type of each column. cells: rows of the table.
        read: gives values of a column. field: names of columns, separated by commas.

    Raises:
        BadInput: there is no such column, or none of vectors; a value is missing; lists differ in length.
    """
    wanted = None if field is None else [one.strip() for one in field.split(",")]
    for column in wanted or ():
        if column not in schema:
            raise BadInput(f"{name} has no column '{column}'; it has: {', '.join(schema)}.")
    if not cells:
        raise BadInput(f"{name} has no rows.")
    sites, windows = dict[str, Rows](), set[int | None]()
    for column, kind in schema.items():
        known = column in TOKENS + DOCUMENTS
        if known or (column not in wanted if wanted is not None else not _is_vectors(kind)):
            continue
        shape = _shape(kind, read(column, 0, 1), f"{name}, column {column}")
        sites[site_of_hook(column)] = ColumnRows(name, column, read, cells, shape)
        windows.add(shape.window)
    if not sites:
        kinds = ", ".join(f"{column} ({kind})" for column, kind in list(schema.items())[:8])
        raise BadInput(f"{name} has no column of vectors; it has: {kinds}.")
    if len(windows) > 1:
        raise BadInput(f"{name} has columns of vectors and of windows: choose one kind with --field.")
    window = windows.pop()
    beside = {
        kind: _beside(name, column, schema[column], cells, read, window or 1)
        for kind, names in (("ids", TOKENS), ("documents", DOCUMENTS))
        for column in names
        if column in schema
    }
    return Vectors(
        name, sites, ids=beside.get("ids"), documents=beside.get("documents"), window=window, notes=tuple(notes)
    )


def _beside(name: str, column: str, kind: Any, cells: int, read: Reader, each: int) -> Rows:
    shape = _shape(kind, read(column, 0, 1), f"{name}, column {column}")
    if shape.dtype.is_floating_point:
        raise BadInput(f"{name}, column {column} holds fractions in place of whole numbers.")
    if shape.width == each and pa.types.is_nested(_storage(kind)):
        return ColumnRows(name, column, read, cells, Shape(1, each, shape.dtype))
    return TableRows(ColumnRows(name, column, read, cells, shape), each)


def _storage(kind: Any) -> Any:
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _is_list(kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_vectors(kind: Any) -> bool:
    """Lists of fractions, or of lists of them."""
    kind = _storage(kind)
    depth = 0
    while _is_list(kind):
        kind, depth = _storage(kind.value_type), depth + 1
    return 0 < depth <= 2 and bool(pa.types.is_floating(kind))


def _shape(kind: Any, first: Any, name: str) -> Shape:
    """The shape of a column's cells, from its type and its first cell."""
    kind, sizes = _storage(kind), list[int]()
    values = _plain(first)
    while _is_list(kind):
        if values.null_count or not len(values):
            raise BadInput(f"{name}: the first value is missing.")
        sizes.append(kind.list_size if pa.types.is_fixed_size_list(kind) else len(values[0]))
        kind, values = _storage(kind.value_type), _plain(values.flatten())
    if len(sizes) > 2 or not (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
        raise BadInput(f"{name} holds {kind} in {len(sizes)} levels of lists, which are no vectors.")
    try:
        dtype = torch.from_numpy(np.empty(0, kind.to_pandas_dtype())).dtype
    except TypeError:
        dtype = torch.bool
    if dtype not in DTYPES.values():
        raise BadInput(f"{name} holds {kind}, which no states are.")
    return Shape(sizes[-1] if sizes else 1, sizes[0] if len(sizes) == 2 else None, dtype)


def _plain(values: Any) -> Any:
    """An array that is neither chunked nor of an extension type."""
    if isinstance(values, pa.ChunkedArray):
        values = values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    return values


def numbers_of(values: Any, shape: Shape, name: str) -> np.ndarray[Any, Any]:
    """The numbers of cells, one after the other; no copy where Arrow holds them so.

    Raises:
        BadInput: a value is missing, or a list has another length than the first one.
    """
    values, many = _plain(values), len(values)
    levels = [shape.window, shape.width] if shape.window else [shape.width]
    for size in levels:
        if not _is_list(values.type):
            break
        if values.null_count:
            raise BadInput(f"{name}: a value is missing (null).")
        if not pa.types.is_fixed_size_list(values.type) and len(values):
            lengths = np.diff(values.offsets.to_numpy())
            if (lengths != size).any():
                other = int(lengths[lengths != size][0])
                raise BadInput(f"{name} holds lists of different lengths: {size} and {other}.")
        values, many = _plain(values.flatten()), many * size
    if values.null_count or len(values) != many:
        raise BadInput(f"{name}: a number is missing (null).")
    found: np.ndarray[Any, Any] = values.to_numpy(zero_copy_only=False)
    return found if found.flags.writeable else found.copy()


ENDINGS = (".arrow", ".feather")


@FORMATS.register("arrow")
class ArrowFormat(StateFormat):
    """An Arrow IPC file or stream, or Feather."""

    title: ClassVar[str] = "Arrow and Feather"
    sentence: ClassVar[str] = (
        "As Parquet: every column of lists of numbers is a site; local files are mapped, not loaded."
    )
    tried: ClassVar[str] = "pyarrow"

    def recognises(self, place: Location) -> bool:
        return place.suffix in ENDINGS

    def read(self, place: Location, field: str | None) -> Vectors:
        return _arrow_file(place, field)


@FORMATS.register("datasets")
class DatasetsFormat(StateFormat):
    """`Dataset.save_to_disk`; several of them in folders shard_0, shard_1, ... as SAELens stores activations."""

    title: ClassVar[str] = "`datasets` folders, SAELens' activations"
    sentence: ClassVar[str] = (
        "What `Dataset.save_to_disk` writes, also in folders shard_0, shard_1, ...; columns that are named by hooks of "
        "TransformerLens get headscan's names."
    )
    tried: ClassVar[str] = "datasets, SAELens"
    first: ClassVar[int] = 1

    def recognises(self, place: Location) -> bool:
        if not place.is_folder:
            return False
        return (place / "dataset_dict.json").exists or bool(_parts(place))

    def read(self, place: Location, field: str | None) -> Vectors:
        if (place / "dataset_dict.json").exists:
            splits = (place / "dataset_dict.json").json().get("splits")
            if not isinstance(splits, list) or len(splits) != 1:
                raise BadInput(f"{place.path} has several splits: name the folder of one ({splits}).")
            place = place / str(splits[0])
        files = [file for part in _parts(place) for file in _data(part)]
        return Vectors.joined(place.name, [_arrow_file(file, field) for file in files])


def _parts(place: Location) -> list[Location]:
    """The folder itself, or its shards in their order."""
    if (place / "state.json").exists and (place / "dataset_info.json").exists:
        return [place]
    found = {
        match[1] for file in place.files("state.json") if (match := re.search(r"/(shard_\d+)/state\.json$", file.path))
    }
    return [place / name for name in sorted(found, key=lambda name: int(name.removeprefix("shard_")))]


def _data(place: Location) -> list[Location]:
    named = (place / "state.json").json().get("_data_files")
    files = [str(one["filename"]) for one in named if isinstance(one, dict)] if isinstance(named, list) else []
    if not files:
        raise BadInput(f"{place.path}/state.json names no data files.")
    for name in files:
        if not (place / name).exists:
            raise BadInput(f"{place.path} is not whole: {name} is missing.")
    return [place / name for name in files]


def _arrow_file(place: Location, field: str | None) -> Vectors:
    table = _table(place)
    schema = {one.name: one.type for one in table.schema}

    def read(column: str, first: int, last: int) -> Any:
        return table.column(column).slice(first, last - first)

    return table_vectors(place.path, schema, table.num_rows, read, field)


def _table(place: Location) -> Any:
    """The whole table, mapped where the file is local."""
    try:
        source = pa.memory_map(place.path) if not place.remote else pa.BufferReader(place.bytes(0, place.size))
        if place.bytes(0, 6) == b"ARROW1":
            return pa.ipc.open_file(source).read_all()
        return pa.ipc.open_stream(source).read_all()
    except (pa.ArrowException, OSError) as error:
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BadInput(f"{place.path} is no Arrow file, or is truncated: {said[:160].rstrip('.')}.") from error


# ---- Parquet.

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
        return place.suffix == ".parquet" or (place.is_folder and bool(place.files(".parquet")))

    def read(self, place: Location, field: str | None) -> Vectors:
        files = place.files(".parquet") if place.is_folder else [place]
        return Vectors.joined(place.name, [_parquet_file(file, field) for file in files])


def _parquet_file(place: Location, field: str | None) -> Vectors:
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
