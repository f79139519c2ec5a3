"""Rows whose one field is a document: .jsonl, .parquet, and streams of the `datasets` library."""

import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from headscan.run.errors import BadInput, nearest
from headscan.text.reading import (
    LONGEST,
    PACKINGS,
    RATIO,
    UNPACKED,
    byte_chunks,
    characters,
    lines,
    too_long,
)
from headscan.text.source import embedded_names

BATCH_ROWS = 256
BATCH_BYTES = 1 << 24


class TextRow(NamedTuple):
    """A row's name in messages, and its document."""

    name: str
    text: str


def checked_unicode(text: str, name: str) -> str:
    """Return the text; BadInput where it holds half a surrogate pair, which no UTF-8 text does."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadInput(f"{name} holds half a surrogate pair at character {error.start}.") from None
    return text


def jsonl(path: Path, field: str) -> Iterator[TextRow]:
    """Yield the document of each line of a JSON lines file; blank lines are passed over.

    One line is held at a time.
    """
    text = characters(byte_chunks(path), str(path))
    for number, line in enumerate(lines(text, str(path)), 1):
        if not line or line.isspace():
            continue
        name = f"{path}, line {number}"
        try:
            row = json.loads(line)
        # a ValueError is also raised for a whole number of more digits than Python reads
        except (ValueError, RecursionError) as error:
            raise BadInput(f"{name} is not JSON: {error}.") from error
        if not isinstance(row, dict):
            raise BadInput(f"{name} is not a JSON object with a field {field!r}.")
        if field not in row:
            raise _no_field(name, field, row)
        yield TextRow(name, _string(row[field], name, field))


def parquet(path: Path, field: str) -> Iterator[TextRow]:
    """Yield the document of each row of a Parquet file.

    Only that column is read, at most 256 rows or 16 MiB at a time.
    """
    if path.suffix.lower() not in PACKINGS:
        yield from _parquet(path, path, field)
        return
    with tempfile.TemporaryFile() as unpacked:  # Parquet is read from its end
        unpacked.writelines(byte_chunks(path))
        unpacked.seek(0)
        yield from _parquet(unpacked, path, field)


def _parquet(file: Any, path: Path, field: str) -> Iterator[TextRow]:
    import pyarrow as arrow
    from pyarrow.parquet import ParquetFile

    try:
        table = ParquetFile(file)
        _check_column(table.schema_arrow, path, field)
        size = os.stat(file if isinstance(file, Path) else file.fileno()).st_size
        batch_rows = _rows_at_once(table.metadata, path, size)
        # With a dictionary, a long row that is repeated is held once.
        table = ParquetFile(file, read_dictionary=[field])
        number = 0
        for batch in table.iter_batches(batch_size=batch_rows, columns=[field]):
            for value in batch.column(0):  # one at a time: equal rows share their memory
                number += 1
                name = f"{path}, row {number}"
                text = _string(value.as_py(), name, field)
                if len(text) > LONGEST:
                    raise too_long(name)
                yield TextRow(name, text)
    except (arrow.ArrowException, OSError) as error:
        raise BadInput(f"{path} cannot be read as Parquet: {_first_line(error)}.") from error
    except UnicodeDecodeError as error:
        raise BadInput(
            f"{path}: a row of the field {field!r} is not UTF-8: {error.reason}."
        ) from error


def _check_column(schema: Any, path: Path, field: str) -> None:
    """Raise BadInput where a table has not exactly one column of this name, of strings."""
    from pyarrow import types

    if field not in schema.names:
        raise _no_field(str(path), field, schema.names)
    count = schema.names.count(field)
    if count > 1:
        raise BadInput(
            f"{path} has {count} fields {field!r}: it is not clear which of them is meant."
        )
    kind = schema.field(field).type
    if types.is_dictionary(kind):
        kind = kind.value_type
    is_string = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
    if not is_string:
        raise BadInput(f"{path}: the field {field!r} is not a string ({kind}).")


def _rows_at_once(metadata: Any, path: Path, size: int) -> int:
    """Return the rows of a batch, from their average length.

    Raises BadInput where a file of this size is packed as no text is. Only the sums of row groups
    are read: Arrow 26 ends the process where the statistics of one of their columns are damaged.
    """
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    if sum(group.total_byte_size for group in groups) > max(UNPACKED, RATIO * size):
        raise BadInput(f"{path} unpacks to more than {RATIO} times its size, which no text does.")
    row_bytes = [group.total_byte_size / max(1, group.num_rows) for group in groups]
    longest = max(row_bytes, default=1.0)
    return max(1, min(BATCH_ROWS, int(BATCH_BYTES / max(1.0, longest))))


def dataset(name: str, field: str) -> Iterator[TextRow]:
    """Yield the documents of a dataset given as ID, ID:SPLIT or ID:CONFIG:SPLIT.

    The split is "train" unless named.
    """
    missing = f"There is no file, folder or embedded text {name!r}"
    try:
        import datasets
    except ImportError as error:
        raise BadInput(
            f"{missing}; to read it as a dataset, pip install 'headscan[datasets]'."
        ) from error
    identity, *parts = name.split(":")
    if len(parts) > 2:
        raise BadInput(f"{missing}; a dataset is named ID, ID:SPLIT or ID:CONFIG:SPLIT.")
    split = parts[-1] if parts else "train"
    config = parts[0] if len(parts) == 2 else None

    try:
        _check_reachable(identity)
        rows = datasets.load_dataset(identity, config, split=split, streaming=True)
        for number, row in enumerate(rows, 1):
            row_name = f"{name}, row {number}"
            if field not in row:
                raise _no_field(row_name, field, row)
            yield TextRow(row_name, _string(row[field], row_name, field))
    except BadInput:
        raise
    # The library raises errors of many packages: network, hub, formats, scripts.
    except Exception as error:
        hint = nearest(name, embedded_names())
        raise BadInput(
            f"{missing}, and no dataset of that name can be read: {_first_line(error)}.{hint}"
        ) from error


def _check_reachable(identity: str) -> None:
    """Raise OSError at once where the hub cannot be reached: `datasets` tries for half a minute."""
    from huggingface_hub import constants, get_session

    if constants.HF_HUB_OFFLINE or Path(identity).exists():
        return
    try:
        get_session().head(constants.ENDPOINT, timeout=10)
    except Exception as error:  # of whatever library makes the request
        raise OSError(f"{constants.ENDPOINT} cannot be reached") from error


def _no_field(name: str, field: str, fields: Iterable[str]) -> BadInput:
    listed = ", ".join(map(str, fields)) or "none"
    return BadInput(f"{name} has no field {field!r}; it has: {listed}.")


def _string(value: Any, name: str, field: str) -> str:
    """Return a row's value; BadInput where it is no string, or (JSON can) half a surrogate."""
    if not isinstance(value, str):
        kind = "null" if value is None else type(value).__name__
        raise BadInput(f"{name}: the field {field!r} is not a string ({kind}).")
    return checked_unicode(value, f"{name}: the field {field!r}")


def _first_line(error: Exception) -> str:
    """Return the first line of an error's message without its full stop, else its type."""
    message_lines = str(error).splitlines() or [type(error).__name__]
    return message_lines[0].rstrip(".")
