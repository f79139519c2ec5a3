"""The activation caches of dictionary_learning."""

from __future__ import annotations

from typing import ClassVar

import torch

from headscan.run import BadInput
from headscan.states.format import FORMATS, StateFormat
from headscan.states.location import Location
from headscan.states.rows import FlatRows, JoinedRows, Rows
from headscan.states.vectors import Vectors

__all__ = ["MemmapFormat"]


@FORMATS.register("memmap")
class MemmapFormat(StateFormat):
    """Folders of shard_0.memmap, shard_0.meta, ...: float32 rows, their shape beside them."""

    title: ClassVar[str] = "dictionary_learning's ActivationCache"
    sentence: ClassVar[str] = (
        "A folder of shards of float32 rows, or a folder of such, a site each; it keeps no token ids."
    )
    tried: ClassVar[str] = ""
    first: ClassVar[int] = 1

    def recognises(self, place: Location) -> bool:
        """By its shards."""
        return place.is_folder and bool(place.files(".memmap"))

    def read(self, place: Location, field: str | None) -> Vectors:
        """A site a folder."""
        folders = dict[str, list[Location]]()
        for file in place.files(".memmap"):
            folders.setdefault(file.path.rsplit("/", 1)[0], []).append(file)
        sites: dict[str, Rows] = {}
        for path, files in sorted(folders.items()):
            name = "vectors" if path == place.path.rstrip("/") else path.rsplit("/", 1)[1]
            sites[name] = JoinedRows([_shard(file) for file in sorted(files, key=_number)])
        return Vectors(place.name, sites)


def _number(place: Location) -> int:
    digits = place.name.removeprefix("shard_").removesuffix(".memmap")
    return int(digits) if digits.isdigit() else 0


def _shard(place: Location) -> FlatRows:
    shape = Location(place.path.removesuffix(".memmap") + ".meta").json().get("shape")
    if not isinstance(shape, list) or len(shape) != 2 or not all(isinstance(one, int) for one in shape):
        raise BadInput(f"{place.path}: the file .meta beside it gives no shape [vectors, width].")
    return FlatRows(place, 0, shape[0], shape[1], torch.float32)
