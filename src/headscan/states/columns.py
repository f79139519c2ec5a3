"""The columns of a table as rows of vectors, token ids and documents."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from headscan.run import BadInput
from headscan.states.location import Location, site_of_hook
from headscan.states.rows import Rows, stored_dtype
from headscan.states.value_columns import TableColumn, value_kind
from headscan.states.vectors import DOCUMENTS, TOKENS, Vectors, as_numbers, chosen

Reader = Callable[[str, int, int], Any]
"""A function that returns a column in the rows first ... last − 1 of a table as an Arrow array."""

NAMES_SHOWN = 8

EIGHT_BIT_KINDS = (pa.int8(), pa.uint8())


@dataclass(frozen=True)
class CellShape:
    """The shape of a column's cells.

    Attributes:
        width: numbers of a vector; 1 where cells are not lists.
        window: vectors of a cell, where cells are lists of vectors.
        dtype: of the numbers.
        sizes: of the lists in each other that a cell is stored as.
    """

    width: int
    window: int | None
    dtype: torch.dtype
    sizes: tuple[int, ...]


class ColumnRows:
    """A column as rows: a cell is a vector or a window of vectors, and counts for `repeat` rows."""

    def __init__(
        self, name: str, read: Reader, cells: int, column: str, shape: CellShape, repeat: int = 1
    ) -> None:
        self.name = name
        self.column = column
        self._read = read
        self.shape = shape
        self.repeat = repeat
        self.rows_a_cell = (shape.window or 1) * repeat
        self.count = cells * self.rows_a_cell
        self.width = shape.width
        self.dtype = shape.dtype

    def read(self, first: int, last: int) -> Tensor:
        first_cell = first // self.rows_a_cell
        last_cell = -(-last // self.rows_a_cell)
        cells = self._read(self.column, first_cell, last_cell)
        numbers = _numbers(cells, self.shape, f"{self.name}, column {self.column}")
        rows = torch.from_numpy(numbers).reshape(-1, self.width)
        if self.repeat > 1:
            rows = rows.repeat_interleave(self.repeat, 0)
        start = first_cell * self.rows_a_cell
        return rows[first - start : last - start]


@dataclass(frozen=True)
class Table:
    """A table in a file.

    Attributes:
        name: of the file.
        types: the Arrow type of each column.
        cells: the number of rows.
        read: reads cells of a column.
        classes: the names that the whole numbers of a column stand for, by column.
    """

    name: str
    types: Mapping[str, Any]
    cells: int
    read: Reader
    classes: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def vectors(self, field: str | None) -> Vectors:
        """Return the vectors of the columns.

        Every column of lists of fractions is a site (where there is none, of 8-bit whole
        numbers), or those columns that `field` names, whatever stands beside them. Raises BadInput
        where there is no such column, or none of vectors; where a value is missing; where lists
        differ in length.
        """
        shapes = {column: self._shape(column) for column in self._sites(field)}
        window = next(iter(shapes.values())).window
        if any(shape.window != window for shape in shapes.values()):
            raise BadInput(
                f"{self.name} has columns of vectors and of windows: choose one kind with --field."
            )
        sites: dict[str, Rows] = {}
        for column, shape in shapes.items():
            rows: Rows = self._rows(column, shape)
            sites[site_of_hook(column)] = rows if field is None else as_numbers(rows)
        return Vectors(
            self.name,
            sites,
            ids=self._numbers_of_tokens(TOKENS, window, field),
            documents=self._numbers_of_tokens(DOCUMENTS, window, field),
            window=window,
            columns=self._value_columns(window or 1),
        )

    def _value_columns(self, rows_a_cell: int) -> dict[str, TableColumn]:
        """Return the columns that have a single value for each row."""
        columns = {}
        for column, arrow_type in self.types.items():
            kind = value_kind(arrow_type)
            if kind is not None:
                classes = self.classes.get(column, ())
                kind = "category" if classes else kind
                columns[column] = TableColumn(self.read, column, kind, rows_a_cell, classes)
        return columns

    def _sites(self, field: str | None) -> list[str]:
        """Return the columns that are sites; BadInput where there are none."""
        columns = chosen(self.name, list(self.types), field, "column")
        if not self.cells:
            raise BadInput(f"{self.name} has no rows.")
        if field is not None:
            return columns

        kinds = {}
        for column, kind in self.types.items():
            levels, number_kind = _nested(kind)
            if column not in TOKENS + DOCUMENTS and levels in (1, 2):
                kinds[column] = number_kind
        sites = [column for column, kind in kinds.items() if pa.types.is_floating(kind)]
        if not sites:
            sites = [column for column, kind in kinds.items() if kind in EIGHT_BIT_KINDS]
        if not sites:
            first = list(self.types.items())[:NAMES_SHOWN]
            listed = ", ".join(f"{column} ({kind})" for column, kind in first)
            raise BadInput(f"{self.name} has no column of vectors; it has: {listed}.")
        return sites

    def _rows(self, column: str, shape: CellShape, repeat: int = 1) -> ColumnRows:
        return ColumnRows(self.name, self.read, self.cells, column, shape, repeat)

    def _numbers_of_tokens(
        self, names: Sequence[str], window: int | None, field: str | None
    ) -> Rows | None:
        """Return the column of token ids or of documents; None where there is none.

        A cell holds a list of a number for each token of a window, or one number for all of them.
        Columns of other kinds, such as texts and the token lists of sentences, are none.
        """
        known = [name for name in names if name in self.types]
        columns = [name for name in known if _is_number(_nested(self.types[name])[1])]
        if not columns:
            return None
        column = columns[-1]
        try:
            shape = self._shape(column)
            if shape.dtype.is_floating_point:
                raise BadInput(
                    f"{self.name}, column {column} holds fractions in place of whole numbers."
                )
        except BadInput:
            if field is None:
                raise
            return None
        if not shape.sizes:
            return self._rows(column, shape, repeat=window or 1)
        if window is None or (field is not None and shape.sizes != (window,)):
            return None
        return self._rows(column, replace(shape, width=1, window=shape.sizes[-1]))

    def _shape(self, column: str) -> CellShape:
        """Return the shape of a column's cells, from its type and its first cell."""
        name = f"{self.name}, column {column}"
        kind = self.types[column]
        vectors = tuple(kind.shape) if isinstance(kind, pa.FixedShapeTensorType) else None
        if vectors is not None and (kind.permutation or [0, 1])[:1] != [0]:
            raise BadInput(f"{name} holds tensors whose dimensions are permuted.")
        kind = _storage(kind)
        values = _plain(self.read(column, 0, 1))
        sizes: list[int] = []
        while _is_list(kind):
            if values.null_count or not len(values):
                raise BadInput(f"{name}: the first value is missing.")
            fixed = pa.types.is_fixed_size_list(kind)
            sizes.append(kind.list_size if fixed else len(values[0]))
            kind = _storage(kind.value_type)
            values = _plain(values.flatten())
        vectors = vectors or tuple(sizes)
        if len(vectors) > 2 or not _is_number(kind):
            raise BadInput(
                f"{name} holds {kind} in {len(vectors)} levels of lists, which are no vectors."
            )
        return CellShape(
            width=vectors[-1] if vectors else 1,
            window=vectors[0] if len(vectors) == 2 else None,
            dtype=stored_dtype(name, kind, kind.to_pandas_dtype()),
            sizes=tuple(sizes),
        )


def _storage(kind: Any) -> Any:
    """Return the type in which values of an extension type are stored."""
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _is_list(kind: Any) -> bool:
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _nested(kind: Any) -> tuple[int, Any]:
    """Return how many levels of lists a type has, and the type of what they hold."""
    levels = 0
    kind = _storage(kind)
    while _is_list(kind):
        kind = _storage(kind.value_type)
        levels += 1
    return levels, kind


def _is_number(kind: Any) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))


def _plain(values: Any) -> Any:
    """Return an array that is neither chunked nor of an extension type."""
    if isinstance(values, pa.ChunkedArray):
        values = values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()
    return values.storage if isinstance(values, pa.ExtensionArray) else values


def _numbers(cells: Any, shape: CellShape, name: str) -> np.ndarray[Any, Any]:
    """Return the numbers of cells in a row, without a copy where Arrow stores them so."""
    values = _plain(cells)
    count = len(cells)
    for size in shape.sizes:
        _check_lists(values, size, name)
        values = _plain(values.flatten())
        count *= size
    if values.null_count or len(values) != count:
        raise BadInput(f"{name}: a number is missing (null).")
    numbers: np.ndarray[Any, Any] = values.to_numpy(zero_copy_only=False)
    return numbers if numbers.flags.writeable else numbers.copy()


def _check_lists(lists: Any, size: int, name: str) -> None:
    """Raise BadInput where a list is missing, or not of this size."""
    if lists.null_count:
        raise BadInput(f"{name}: a value is missing (null).")
    if pa.types.is_fixed_size_list(lists.type) or not len(lists):
        return
    lengths = np.diff(lists.offsets.to_numpy())
    different = lengths[lengths != size]
    if len(different):
        raise BadInput(f"{name} holds lists of different lengths: {size} and {int(different[0])}.")


def table_refusal(location: Location, kind: str, error: BaseException) -> BadInput:
    """Return the refusal of a file that is not of the kind that it should be."""
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return BadInput(
        f"{location.path} is no {kind} file, or is truncated: {reason[:160].rstrip('.')}."
    )


def column_types(location: Location, schema: Any, field: str | None) -> Mapping[str, Any]:
    """Return the type of each column.

    Raises BadInput where two have the same name, unless `field` names others.
    """
    try:
        columns = [(column.name, column.type) for column in schema]
    except UnicodeDecodeError as error:
        raise table_refusal(location, "table", error) from None
    counts = Counter(name for name, _ in columns)
    types = {name: kind for name, kind in columns if counts[name] == 1}
    repeated = counts.keys() - types.keys()
    if repeated and (field is None or repeated & {part.strip() for part in field.split(",")}):
        raise BadInput(
            f"{location.path} has several columns of the same name: {', '.join(schema.names)}."
        )
    return types
