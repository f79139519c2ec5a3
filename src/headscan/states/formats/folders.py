"""What `headscan states` writes, and reads again."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from headscan.model.sentence import SENTENCE
from headscan.run import BadInput, Json, write_atomic
from headscan.states.formats.arrays import read_header
from headscan.states.location import Location
from headscan.states.vectors import FORMATS, JoinedRows, Rows, StateFormat, Vectors

INDEX = "states.json"
LAYOUT = "headscan-states"
VERSION = 1


@dataclass(frozen=True)
class StoredSite:
    """A site: its name, the numbers of a vector, and the dtype that they are stored in."""

    site: str
    width: int
    dtype: str


@dataclass(frozen=True)
class StateShard:
    """A file: the windows first ... last − 1, its size in bytes and its SHA-256; its tokens where
    windows differ in length.
    """

    file: str
    first: int
    last: int
    bytes: int
    sha256: str
    tokens: int | None = None


@dataclass(frozen=True)
class StoredIndex:
    """The content of `states.json`, which stands beside shards of safetensors.

    Each shard holds, by site, tensors [windows, context, width], and `token_ids` and `documents`
    [windows, context]. The index is replaced in one step after each shard is on the disk, so that
    what it names is whole at any moment; `complete` says whether the text was read to its end,
    `mark` how far it was read before.

    `alone`, of a sentence encoder: windows are texts of lengths of their own, at most `context`. A
    shard then holds tensors [tokens, width], `token_ids` and `documents` [tokens], `lengths`
    [windows], and at the site `sentence` [windows, width].
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
    alone: bool = False

    @property
    def tokens(self) -> int:
        """Tokens in all shards."""
        return (
            sum(shard.tokens or 0 for shard in self.shards)
            if self.alone
            else self.windows * self.context
        )

    @property
    def windows(self) -> int:
        """Windows in all shards."""
        return self.shards[-1].last if self.shards else 0

    def write(self, folder: Path) -> None:
        """Replace the index in the folder."""
        head = {"format": LAYOUT, "version": VERSION, "tokens": self.tokens}
        write_atomic(folder / INDEX, json.dumps(head | asdict(self), indent=1, ensure_ascii=False))

    def shard(
        self, folder: Path, first: int, last: int, tensors: Mapping[str, Tensor], mark: Json
    ) -> "StoredIndex":
        """Write a shard, then the index that names it too."""
        from safetensors.torch import save

        data = save(
            {name: tensor.contiguous() for name, tensor in tensors.items()}, {"format": LAYOUT}
        )
        name = f"states-{len(self.shards):05d}.safetensors"
        write_atomic(folder / name, data)
        shard = StateShard(
            name,
            first,
            last,
            len(data),
            hashlib.sha256(data).hexdigest(),
            tokens=len(tensors["token_ids"]) if self.alone else None,
        )
        index = replace(self, shards=[*self.shards, shard], mark=mark)
        index.write(folder)
        return index

    @classmethod
    def read(cls, place: Location) -> "StoredIndex":
        """The index at a place; BadInput where it is damaged, or of a version that this one does
        not read.
        """
        content = place.json()
        if content.get("format") != LAYOUT or content.get("version") != VERSION:
            raise BadInput(
                f"{place.path} is of version {content.get('version')}; this headscan reads "
                f"{VERSION}."
            )
        from pydantic import TypeAdapter, ValidationError

        own = {
            name: value
            for name, value in content.items()
            if name not in ("format", "version", "tokens")
        }
        try:
            return TypeAdapter(cls).validate_python(own)
        except ValidationError as error:
            raise BadInput(f"{place.path} is damaged: {error.errors()[0]['msg']}.") from error


def verify(folder: str) -> int:
    """Read every shard of a folder and hold it to its checksum; returns the number of vectors of
    each site. Raises BadInput where a shard is missing, or its bytes are not those that were
    written.
    """
    place = Location(folder)
    index = StoredIndex.read(place / INDEX)
    for shard in index.shards:
        digest = hashlib.sha256()
        file = place.inside(shard.file)
        for start in range(0, shard.bytes, 1 << 24):
            digest.update(file.bytes(start, min(start + (1 << 24), shard.bytes)))
        if file.size != shard.bytes or digest.hexdigest() != shard.sha256:
            raise BadInput(f"{file.path} is damaged: it is not what was written.")
    return index.tokens


@FORMATS.register("headscan")
class HeadscanFormat(StateFormat):
    title = "`headscan states`"
    tried = "headscan"
    sentence = (
        "The folder that `headscan states` wrote: sites, windows, token ids, documents and "
        "protocol."
    )
    first = 9

    def recognises(self, place: Location) -> bool:
        return place.is_folder and (place / INDEX).exists

    def read(self, place: Location, field: str | None) -> Vectors:
        index = StoredIndex.read(place / INDEX)
        if not index.shards:
            raise BadInput(
                f"{place.path} holds no states yet: `headscan states` was interrupted at once."
            )
        names = [*(site.site for site in index.sites), "token_ids", "documents"]
        sites = names[:-2]
        names = [*names, *(["lengths"] if index.alone else [])]
        shards = [_rows(place.inside(shard.file), shard, index, names) for shard in index.shards]
        rows: dict[str, Rows] = {
            name: JoinedRows([shard[name] for shard in shards]) for name in names
        }
        notes = (
            ()
            if index.complete
            else ("Its writing was interrupted: this is the beginning of the text.",)
        )
        return Vectors(
            place.name,
            {name: rows[name] for name in sites},
            ids=rows["token_ids"],
            documents=rows["documents"],
            window=index.context,
            vocabulary=index.vocabulary,
            model=str(index.model.get("name", "")) or None,
            notes=notes,
            lengths=rows.get("lengths"),
        )


def _rows(
    file: Location, shard: StateShard, index: StoredIndex, names: list[str]
) -> dict[str, Rows]:
    if not file.exists or file.size != shard.bytes:
        raise BadInput(f"{file.path} is missing or truncated: {shard.bytes:,} bytes were written.")
    tensors = read_header(file)
    windows = shard.last - shard.first
    whole = (shard.tokens or 0,) if index.alone else (windows, index.context)
    leads = {
        name: (windows,) if index.alone and name in (SENTENCE, "lengths") else whole
        for name in names
    }
    for name, lead in leads.items():
        if name not in tensors or tuple(tensors[name].shape[: len(lead)]) != lead:
            of = (
                f"{shard.tokens} tokens of {windows} texts"
                if index.alone
                else f"{windows} windows of {index.context}"
            )
            raise BadInput(f"{file.path} does not hold {of} at '{name}'.")
    return {
        name: tensors[name].rows(math.prod(lead), (*tensors[name].shape, 1)[len(lead)])
        for name, lead in leads.items()
    }
