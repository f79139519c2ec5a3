"""What `headscan states` writes."""

from __future__ import annotations

import hashlib
from typing import ClassVar

from headscan.run import BadInput
from headscan.states.format import FORMATS, StateFormat
from headscan.states.formats.safetensors import read_header
from headscan.states.layout import INDEX, StoredIndex
from headscan.states.location import Location
from headscan.states.rows import JoinedRows, Rows
from headscan.states.vectors import Vectors

__all__ = ["HeadscanFormat"]


@FORMATS.register("headscan")
class HeadscanFormat(StateFormat):
    """`states.json` and shards of safetensors: sites, token ids, documents, protocol."""

    title: ClassVar[str] = "`headscan states`"
    sentence: ClassVar[str] = (
        "The folder that `headscan states` wrote: sites, windows, token ids, documents and protocol."
    )
    tried: ClassVar[str] = "headscan"
    first: ClassVar[int] = 9

    def recognises(self, place: Location) -> bool:
        """By its index."""
        return place.is_folder and (place / INDEX).exists

    def read(self, place: Location, field: str | None) -> Vectors:
        """All sites."""
        index = StoredIndex.read(place / INDEX)
        if not index.shards:
            raise BadInput(f"{place.path} holds no states yet: `headscan states` was interrupted at once.")
        parts: dict[str, list[Rows]] = {
            name: [] for name in (*(one.site for one in index.sites), "token_ids", "documents")
        }
        for shard in index.shards:
            file, windows = place / shard.file, shard.last - shard.first
            if not file.exists or file.size != shard.bytes:
                raise BadInput(f"{file.path} is missing or truncated: {shard.bytes:,} bytes were written.")
            tensors, _ = read_header(file)
            for name, rows in parts.items():
                if name not in tensors or tensors[name].shape[:2] != (windows, index.context):
                    raise BadInput(f"{file.path} does not hold {windows} windows of {index.context} at '{name}'.")
                shape = tensors[name].shape
                rows.append(tensors[name].rows(windows * index.context, shape[2] if len(shape) == 3 else 1))
        digest = hashlib.sha256("".join(shard.sha256 for shard in index.shards).encode()).hexdigest()
        notes = () if index.complete else ("Its writing was interrupted: this is the beginning of the text.",)
        return Vectors(
            place.name, {one.site: JoinedRows(parts[one.site]) for one in index.sites}, ids=JoinedRows(parts["token_ids"]),
            documents=JoinedRows(parts["documents"]), window=index.context, vocabulary=index.vocabulary,
            model=str(index.model.get("name", "")) or None, notes=notes, whole_identity=digest,
        )  # fmt: skip
