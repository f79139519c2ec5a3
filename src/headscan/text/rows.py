"""Rows whose one field is a document: .jsonl, .parquet, and the `datasets` library's streams."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from headscan.run.errors import BadInput
from headscan.text.reading import LONGEST, PACKINGS, RATIO, UNPACKED, byte_chunks, characters, lines, too_long

__all__ = ["dataset", "jsonl", "parquet"]

BATCH_ROWS = 256
BATCH_BYTES = 1 << 24


def _no_field(where: str, column: str, there: Iterable[str]) -> BadInput:
    return BadInput(f"{where} has no field {column!r}; it has: {', '.join(map(str, there)) or 'none'}.")


def _string(value: Any, where: str, column: str) -> str:
    if not isinstance(value, str):
        kind = "null" if value is None else type(value).__name__
        raise BadInput(f"{where}: the field {column!r} is not a string ({kind}).")
    try:
        value.encode()
    except UnicodeEncodeError as fault:  # JSON can spell half a surrogate pair, which no UTF-8 text holds
        raise BadInput(
            f"{where}: the field {column!r} holds half a surrogate pair at character {fault.start}."
        ) from fault
    return value


def jsonl(path: Path, column: str) -> Iterator[tuple[str, str]]:
    """Each line of a JSON lines file as (where, document); blank lines are passed over, one line is held at a time."""
    for number, line in enumerate(lines(characters(byte_chunks(path), str(path)), str(path)), 1):
        if not line or line.isspace():
            continue
        where = f"{path}, line {number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as fault:  # also a whole number of more digits than Python reads
            raise BadInput(f"{where} is not JSON: {fault}.") from fault
        if not isinstance(row, dict):
            raise BadInput(f"{where} is not a JSON object with a field {column!r}.")
        if column not in row:
            raise _no_field(where, column, row)
        yield where, _string(row[column], where, column)


def parquet(path: Path, column: str) -> Iterator[tuple[str, str]]:
    """Each row of a Parquet file as (where, document); only that column is read, at most 256 rows or 16 MiB at a time.

    A packed file (.parquet.gz, .parquet.zst) is unpacked into a temporary file first: Parquet is read from its end.
    """
    if path.suffix.lower() in PACKINGS:
        with tempfile.TemporaryFile() as unpacked:
            for chunk in byte_chunks(path):
                unpacked.write(chunk)
            unpacked.seek(0)
            yield from _parquet(unpacked, path, column)
    else:
        yield from _parquet(path, path, column)


def _parquet(file: Any, path: Path, column: str) -> Iterator[tuple[str, str]]:
    import pyarrow as arrow
    from pyarrow.parquet import ParquetFile

    try:
        table = ParquetFile(file)
        schema = table.schema_arrow
        if column not in schema.names:
            raise _no_field(str(path), column, schema.names)
        kind = schema.field(column).type
        if arrow.types.is_dictionary(kind):
            kind = kind.value_type
        if not (arrow.types.is_string(kind) or arrow.types.is_large_string(kind) or arrow.types.is_string_view(kind)):
            raise BadInput(f"{path}: the field {column!r} is not a string ({kind}).")
        number, many = 0, _rows_at_once(table.metadata, path, column)
        table = ParquetFile(file, read_dictionary=[column])  # a long row that is repeated is held once
        for batch in table.iter_batches(batch_size=many, columns=[column]):
            for value in batch.column(0):  # one by one: rows that say the same share their memory
                number += 1
                where = f"{path}, row {number}"
                text = _string(value.as_py(), where, column)
                if len(text) > LONGEST:
                    raise too_long(where)
                yield where, text
    except (arrow.ArrowException, OSError) as fault:
        reason = str(fault).splitlines()[0] if str(fault) else type(fault).__name__
        raise BadInput(f"{path} cannot be read as Parquet: {reason.rstrip('.')}.") from fault
    except UnicodeDecodeError as fault:
        raise BadInput(f"{path}: a row of the field {column!r} is not UTF-8: {fault.reason}.") from fault


def _rows_at_once(metadata: Any, path: Path, column: str) -> int:
    """Rows of a batch, by how long they are on average; BadInput where a column is packed as no text is."""
    names = [metadata.schema.column(k).path for k in range(metadata.num_columns)]
    place, longest = names.index(column), 1.0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        part = group.column(place)
        if part.total_uncompressed_size > max(UNPACKED, RATIO * part.total_compressed_size):
            raise BadInput(
                f"{path}: the field {column!r} unpacks to more than {RATIO} times its size, which no text does."
            )
        longest = max(longest, part.total_uncompressed_size / max(1, group.num_rows))
    return max(1, min(BATCH_ROWS, int(BATCH_BYTES / longest)))


def dataset(name: str, column: str) -> Iterator[tuple[str, str]]:
    """Stream the rows of a dataset given as ID, ID:SPLIT or ID:CONFIG:SPLIT (split "train" unless said)."""
    missing = f"There is no file, folder or embedded text {name!r}"
    try:
        import datasets
    except ImportError as fault:
        raise BadInput(f"{missing}; to read it as a dataset, pip install 'headscan[datasets]'.") from fault
    identity, *rest = name.split(":")
    if len(rest) > 2:
        raise BadInput(f"{missing}; a dataset is named ID, ID:SPLIT or ID:CONFIG:SPLIT.")
    split = rest[-1] if rest else "train"
    config = rest[0] if len(rest) == 2 else None
    try:
        stream = iter(datasets.load_dataset(identity, config, split=split, streaming=True))
        number = 0
        while True:
            row = next(stream, None)
            if row is None:
                return
            number += 1
            where = f"{name}, row {number}"
            if column not in row:
                raise _no_field(where, column, row)
            yield where, _string(row[column], where, column)
    except BadInput:
        raise
    except Exception as fault:  # the library's faults come from many packages: network, hub, formats, scripts
        lines_of_reason = str(fault).splitlines()
        reason = lines_of_reason[0].rstrip(".") if lines_of_reason else type(fault).__name__
        raise BadInput(f"{missing}, and no dataset of that name can be read: {reason}.") from fault
