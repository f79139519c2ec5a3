"""Arrow files, and the folders that the library `datasets` makes of them."""

from __future__ import annotations

import re
from typing import Any, ClassVar

import pyarrow as pa

from headscan.run import BadInput
from headscan.states.columns import table_vectors
from headscan.states.format import FORMATS, StateFormat
from headscan.states.location import Location
from headscan.states.vectors import Vectors

__all__ = ["ArrowFormat", "DatasetsFormat"]

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
        """By its ending."""
        return place.suffix in ENDINGS

    def read(self, place: Location, field: str | None) -> Vectors:
        """A site a column."""
        return _file(place, field)


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
        """By the files that it writes beside the data."""
        if not place.is_folder:
            return False
        return (place / "dataset_dict.json").exists or bool(_parts(place))

    def read(self, place: Location, field: str | None) -> Vectors:
        """A site a column."""
        if (place / "dataset_dict.json").exists:
            splits = (place / "dataset_dict.json").json().get("splits")
            if not isinstance(splits, list) or len(splits) != 1:
                raise BadInput(f"{place.path} has several splits: name the folder of one ({splits}).")
            place = place / str(splits[0])
        files = [file for part in _parts(place) for file in _data(part)]
        return Vectors.joined(place.name, [_file(file, field) for file in files])


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


def _file(place: Location, field: str | None) -> Vectors:
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
