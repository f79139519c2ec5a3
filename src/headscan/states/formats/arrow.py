"""Arrow and Feather files, and the folders of the library `datasets`, which hold such files."""

import re
import struct
from contextlib import suppress
from typing import Any

import pyarrow as pa

from headscan.run import BadInput
from headscan.run.memory import unpackable
from headscan.states.columns import Table, column_types, table_refusal
from headscan.states.location import Location
from headscan.states.value_columns import class_names
from headscan.states.vectors import FORMATS, StateFormat, Vectors

FILE_HEAD = b"ARROW1"
FILE_HEAD_BYTES = 8  # with its padding


@FORMATS.register("arrow")
class ArrowFormat(StateFormat):
    title = "Arrow and Feather"
    tried = "pyarrow"
    sentence = (
        "As Parquet: every column of lists of numbers is a site; local files are mapped, not "
        "loaded."
    )
    endings = (".arrow", ".feather")

    def read(self, location: Location, field: str | None) -> Vectors:
        return _arrow(location, field)


def _arrow(location: Location, field: str | None) -> Vectors:
    """Return the vectors of an Arrow file or stream."""
    try:
        if location.remote:
            source = pa.BufferReader(location.bytes(0, location.size))
        else:
            source = pa.memory_map(location.path)
        is_file = location.bytes(0, len(FILE_HEAD)) == FILE_HEAD
        table = _read_table(source, location.path, is_file=is_file)
    except (pa.ArrowException, OSError) as error:
        raise table_refusal(location, "Arrow", error) from error

    def read(column: str, first: int, last: int) -> Any:
        values = table.column(column).slice(first, last - first)
        try:
            # pyarrow believes offsets, and aborts the process where they lead nowhere.
            values.validate(full=True)
        except pa.ArrowInvalid as error:
            raise table_refusal(location, "Arrow", error) from error
        return values

    types = column_types(location, table.schema, field)
    classes = class_names(table.schema)
    return Table(location.path, types, table.num_rows, read, classes).vectors(field)


def _read_table(source: Any, name: str, *, is_file: bool) -> Any:
    """Return the table of an Arrow file or stream, mapped where it is not packed.

    Raises BadInput where it says that it unpacks to too much.
    """
    limit = unpackable()
    size = 0
    source.seek(FILE_HEAD_BYTES if is_file else 0)  # a file is a stream between a head and a foot
    # Damage is found by the reader below, which says what it is.
    with suppress(pa.ArrowException, OSError, struct.error):
        for message in pa.ipc.MessageReader.open_stream(source):
            if message.type in ("record batch", "dictionary"):
                size += _Message(message).unpacked_bytes()
    if size > limit:
        raise BadInput(
            f"{name} unpacks to more than {limit:,} bytes, half of the memory that is free: write "
            "it uncompressed."
        )
    source.seek(0)
    open_reader = pa.ipc.open_file if is_file else pa.ipc.open_stream
    return open_reader(source).read_all()


class _Message:
    """A record batch or dictionary of Arrow, whose metadata are a flatbuffer (Message.fbs)."""

    def __init__(self, message: Any) -> None:
        self.metadata = memoryview(message.metadata)
        self.body = memoryview(message.body)
        self.is_dictionary = message.type == "dictionary"

    def unpacked_bytes(self) -> int:
        """Return the bytes to which the buffers unpack; 0 where they are not packed."""
        root = self._number("<I", 0)
        batch = self._entry(root, 2)
        if self.is_dictionary:
            batch = self._entry(batch, 1)
        packed = self._entry(batch, 3)
        if not packed:
            return 0
        buffers = self._entry(batch, 2)
        count = self._number("<I", buffers)
        start = buffers + 4
        places = struct.iter_unpack("<qq", self.metadata[start : start + 16 * count])
        total = 0
        for offset, size in places:
            if size:
                # A packed buffer begins with its unpacked size; a negative one is not packed.
                (unpacked,) = struct.unpack_from("<q", self.body, offset)
                total += max(0, unpacked)
        return total

    def _number(self, kind: str, offset: int) -> int:
        return int(struct.unpack_from(kind, self.metadata, offset)[0])

    def _entry(self, table: int, index: int) -> int:
        """Return where an entry of a flatbuffer's table leads; 0 where the table has none."""
        entries = table - self._number("<i", table)
        offset = 4 + 2 * index
        if offset >= self._number("<H", entries):
            return 0
        field = self._number("<H", entries + offset)
        if not field:
            return 0
        return table + field + self._number("<I", table + field)


@FORMATS.register("datasets")
class DatasetsFormat(StateFormat):
    title = "`datasets` folders, SAELens' activations"
    tried = "datasets, SAELens"
    sentence = (
        "What `Dataset.save_to_disk` writes, also in folders shard_0, shard_1, ...; columns that "
        "are named by hooks of TransformerLens get headscan's names."
    )
    first = 1

    def recognises(self, location: Location) -> bool:
        if not location.is_folder:
            return False
        return (location / "dataset_dict.json").exists or bool(_shards(location))

    def read(self, location: Location, field: str | None) -> Vectors:
        index = location / "dataset_dict.json"
        if index.exists:
            splits = index.json().get("splits")
            if not isinstance(splits, list) or len(splits) != 1:
                raise BadInput(
                    f"{location.path} has several splits: name the folder of one ({splits})."
                )
            location = location.inside(str(splits[0]))
        parts = []
        for shard in _shards(location):
            for file in _data_files(shard):
                parts.append(_arrow(file, field))
        return Vectors.joined(location.name, parts)


def _shards(folder: Location) -> list[Location]:
    """Return the folder itself, or its shards in their order."""
    if (folder / "state.json").exists and (folder / "dataset_info.json").exists:
        return [folder]
    numbers = {}
    for file in folder.files("state.json"):
        match = re.search(r"/(shard_(\d+))/state\.json$", file.path)
        if match:
            numbers[match[1]] = int(match[2])
    return [folder / name for name in sorted(numbers, key=numbers.__getitem__)]


def _data_files(shard: Location) -> list[Location]:
    """Return the files that a shard names; BadInput where one is missing."""
    entries = (shard / "state.json").json().get("_data_files")
    names = []
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, dict) and "filename" in entry:
            names.append(str(entry["filename"]))
    if not names:
        raise BadInput(f"{shard.path}/state.json names no data files.")
    for name in names:
        if not shard.inside(name).exists:
            raise BadInput(f"{shard.path} is not whole: {name} is missing.")
    return [shard / name for name in names]
