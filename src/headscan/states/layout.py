"""headscan's own layout of stored states: `states.json` beside shards of safetensors."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from headscan.run import BadInput, Json
from headscan.run.files import write_atomic
from headscan.states.location import Location

__all__ = ["INDEX", "LAYOUT", "StateShard", "StoredIndex", "StoredSite", "verify"]

INDEX, LAYOUT, VERSION = "states.json", "headscan-states", 1


@dataclass(frozen=True)
class StoredSite:
    """A site: its name, the numbers of a vector, and the dtype that they are stored in."""

    site: str
    width: int
    dtype: str


@dataclass(frozen=True)
class StateShard:
    """A file: the windows first ... last − 1, its size in bytes and its SHA-256."""

    file: str
    first: int
    last: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class StoredIndex:
    """What `states.json` says.

    Each shard holds, by site, tensors [windows, context, width], and `token_ids` and `documents` [windows, context].
    The index is replaced in one step after each shard is on the disk, so that what it names is whole at any moment;
    `complete` says whether the text was read to its end, `mark` how far it was read before.
    """

    sites: list[StoredSite]
    context: int
    vocabulary: int
    model: dict[str, Any] = field(default_factory=dict)
    text: dict[str, Any] = field(default_factory=dict)
    protocol: dict[str, Any] = field(default_factory=dict)
    shards: list[StateShard] = field(default_factory=list)
    complete: bool = False
    mark: Json = None

    @property
    def windows(self) -> int:
        """Windows in all shards."""
        return self.shards[-1].last if self.shards else 0

    def write(self, folder: Path) -> None:
        """Replace the index in the folder."""
        head = {"format": LAYOUT, "version": VERSION, "tokens": self.windows * self.context}
        write_atomic(folder / INDEX, json.dumps(head | asdict(self), indent=1, ensure_ascii=False))

    def shard(self, folder: Path, first: int, last: int, tensors: Mapping[str, Tensor], mark: Json) -> StoredIndex:
        """Write a shard, then the index that names it too."""
        from safetensors.torch import save

        data = save({name: tensor.contiguous() for name, tensor in tensors.items()}, {"format": LAYOUT})
        name = f"states-{len(self.shards):05d}.safetensors"
        write_atomic(folder / name, data)
        one = StateShard(name, first, last, len(data), hashlib.sha256(data).hexdigest())
        new = replace(self, shards=[*self.shards, one], mark=mark)
        new.write(folder)
        return new

    @classmethod
    def read(cls, place: Location) -> StoredIndex:
        """The index at a place.

        Raises:
            BadInput: it is damaged, or of a version that this one does not read.
        """
        found = place.json()
        if found.get("format") != LAYOUT or found.get("version") != VERSION:
            raise BadInput(f"{place.path} is of version {found.get('version')}; this headscan reads {VERSION}.")
        from pydantic import TypeAdapter, ValidationError

        own = {name: value for name, value in found.items() if name not in ("format", "version", "tokens")}
        try:
            return TypeAdapter(cls).validate_python(own)
        except ValidationError as error:
            raise BadInput(f"{place.path} is damaged: {error.errors()[0]['msg']}.") from error


def verify(folder: str) -> int:
    """Read every shard of a folder and hold it to its checksum; the number of vectors of each site.

    Raises:
        BadInput: a shard is missing, or its bytes are not those that were written.
    """
    place = Location(folder)
    index = StoredIndex.read(place / INDEX)
    for shard in index.shards:
        digest, file = hashlib.sha256(), place / shard.file
        for start in range(0, shard.bytes, 1 << 24):
            digest.update(file.bytes(start, min(start + (1 << 24), shard.bytes)))
        if file.size != shard.bytes or digest.hexdigest() != shard.sha256:
            raise BadInput(f"{file.path} is damaged: it is not what was written.")
    return index.windows * index.context
