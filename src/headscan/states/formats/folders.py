"""The folders that `headscan states` writes, and reads again."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from headscan.model.sentence import SENTENCE
from headscan.run import BadInput, Json, write_atomic
from headscan.states.formats.arrays import read_header
from headscan.states.location import Location
from headscan.states.rows import JoinedRows, Rows
from headscan.states.vectors import FORMATS, StateFormat, Vectors, chosen
from headscan.text.tokens import NO_FRAME, Frame

INDEX = "states.json"
LAYOUT = "headscan-states"
VERSION = 1

HASHED_BYTES = 1 << 24
"""So many bytes of a shard are hashed at a time."""


@dataclass(frozen=True)
class StoredSite:
    """A site: its name, the numbers of a vector, and the dtype that they are stored in."""

    site: str
    width: int
    dtype: str


@dataclass(frozen=True)
class StateShard:
    """A file of states.

    Attributes:
        file: its name.
        first, last: the windows first ... last − 1 are in it.
        bytes: its size.
        sha256: its checksum.
        tokens: where windows differ in length.
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
    the shards that it names are complete at any moment.

    Attributes:
        complete: whether the text was read to its end.
        mark: how far the text was read, before its end.
        alone: whether windows are the texts of a sentence encoder, with lengths of their own, at
            most `context`. A shard then holds tensors [tokens, width], `token_ids` and `documents`
            [tokens], `lengths` [windows], and at the site `sentence` [windows, width].
        frame: the tokens that stood around every window; their states are not stored.
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
    frame: Frame = NO_FRAME

    @property
    def tokens(self) -> int:
        """Return the tokens in all shards."""
        if self.alone:
            return sum(shard.tokens or 0 for shard in self.shards)
        return self.windows * self.context

    @property
    def windows(self) -> int:
        """Return the windows in all shards."""
        return self.shards[-1].last if self.shards else 0

    def write(self, folder: Path) -> None:
        """Replace the index in the folder."""
        header = {"format": LAYOUT, "version": VERSION, "tokens": self.tokens}
        content = json.dumps(header | asdict(self), indent=1, ensure_ascii=False)
        write_atomic(folder / INDEX, content)

    def shard(
        self, folder: Path, first: int, last: int, tensors: Mapping[str, Tensor], mark: Json
    ) -> "StoredIndex":
        """Write a shard, then an index that names it, too; return that index."""
        from safetensors.torch import save

        contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
        data = save(contiguous, {"format": LAYOUT})
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
    def read(cls, location: Location) -> "StoredIndex":
        """Return the index in a file.

        Raises BadInput where it is damaged, or of a version that this headscan does not read.
        """
        content = location.json()
        if content.get("format") != LAYOUT or content.get("version") != VERSION:
            raise BadInput(
                f"{location.path} is of version {content.get('version')}; this headscan reads "
                f"{VERSION}."
            )
        from pydantic import TypeAdapter, ValidationError

        for name in ("format", "version", "tokens"):
            content.pop(name, None)
        try:
            return TypeAdapter(cls).validate_python(content)
        except ValidationError as error:
            raise BadInput(f"{location.path} is damaged: {error.errors()[0]['msg']}.") from error


def verify(folder: str) -> int:
    """Compare every shard of a folder with its checksum; return the number of vectors of each site.

    Raises BadInput where a shard is missing, or its bytes are not those that were written.
    """
    location = Location(folder)
    index = StoredIndex.read(location / INDEX)
    for shard in index.shards:
        digest = hashlib.sha256()
        file = location.inside(shard.file)
        for start in range(0, shard.bytes, HASHED_BYTES):
            digest.update(file.bytes(start, min(start + HASHED_BYTES, shard.bytes)))
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

    def recognises(self, location: Location) -> bool:
        return location.is_folder and (location / INDEX).exists

    def read(self, location: Location, field: str | None) -> Vectors:
        index = StoredIndex.read(location / INDEX)
        if not index.shards:
            raise BadInput(
                f"{location.path} holds no states yet: `headscan states` was interrupted at once."
            )
        sites = chosen(location.path, [site.site for site in index.sites], field)
        names = [*sites, "token_ids", "documents"]
        if index.alone:
            names.append("lengths")
        shards = []
        for shard in index.shards:
            shards.append(_shard_rows(location.inside(shard.file), shard, index, names))
        rows: dict[str, Rows] = {}
        for name in names:
            rows[name] = JoinedRows([shard[name] for shard in shards])
        notes: tuple[str, ...] = ()
        if not index.complete:
            notes = ("Its writing was interrupted: this is the beginning of the text.",)
        if index.frame.length:
            added = " ".join(index.text.get("added", ()))
            notes += (f"Windows were read with {added} added; these positions are not stored.",)
        return Vectors(
            location.name,
            {site: rows[site] for site in sites},
            ids=rows["token_ids"],
            documents=rows["documents"],
            window=index.context,
            vocabulary=index.vocabulary,
            model=str(index.model.get("name", "")) or None,
            notes=notes,
            lengths=rows.get("lengths"),
            frame=index.frame,
        )


def _shard_rows(
    file: Location, shard: StateShard, index: StoredIndex, names: Sequence[str]
) -> dict[str, Rows]:
    """Return the rows of a shard by the names of its tensors; BadInput where they do not fit."""
    if not file.exists or file.size != shard.bytes:
        raise BadInput(f"{file.path} is missing or truncated: {shard.bytes:,} bytes were written.")
    tensors = read_header(file)
    windows = shard.last - shard.first
    content = f"{windows} windows of {index.context}"
    if index.alone:
        content = f"{shard.tokens} tokens of {windows} texts"
    rows: dict[str, Rows] = {}
    for name in names:
        leading: tuple[int, ...] = (windows, index.context)
        if index.alone:
            by_window = name in (SENTENCE, "lengths")
            leading = (windows if by_window else shard.tokens or 0,)
        tensor = tensors.get(name)
        if tensor is None or tensor.shape[: len(leading)] != leading:
            raise BadInput(f"{file.path} does not hold {content} at '{name}'.")
        width = tensor.shape[len(leading)] if len(tensor.shape) > len(leading) else 1
        rows[name] = tensor.rows(math.prod(leading), width)
    return rows
