"""Stores that a program wrote: FAISS indexes, the requests of vLLM, and what `headscan states` writes."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from headscan.run import BadInput, Json
from headscan.run.files import write_atomic
from headscan.states.formats.arrays import StoredTensor, read_header
from headscan.states.location import Location
from headscan.states.vectors import FORMATS, FlatRows, JoinedRows, LayerRows, NumberedParts, Rows, StateFormat, Vectors

FLAT = {b"IxF2", b"IxFI", b"IxFl"}
# Kind, width, vectors, two fillers, whether trained, metric; behind it, for a metric with a parameter, that; then the
# number of float32 (or, in newer files, of bytes in fours) and the vectors.
HEADER = struct.Struct("<4siqqq?i")


@FORMATS.register("faiss")
class FaissFormat(StateFormat):
    """The vectors of an index."""

    title: ClassVar[str] = "FAISS"
    sentence: ClassVar[str] = (
        "The vectors of an index: those of a flat one are read as needed, without faiss; of others as the index "
        "reconstructs them, with losses where it compresses (needs faiss)."
    )
    tried: ClassVar[str] = "faiss"

    def recognises(self, place: Location) -> bool:
        return place.suffix in (".faiss", ".index")

    def read(self, place: Location, field: str | None) -> Vectors:
        head = place.bytes(0, HEADER.size + 12)
        if len(head) < 8:
            raise BadInput(f"{place.path} is no FAISS index, or is truncated: it has {len(head)} bytes.")
        rows: Rows = _flat(place, head) if head[:4] in FLAT else _Reconstructed(place)
        notes = () if isinstance(rows, FlatRows) else ("As the index reconstructs them; a compressing one loses.",)
        return Vectors(place.name, {"vectors": rows}, notes=notes)


def _flat(place: Location, head: bytes) -> FlatRows:
    if len(head) < HEADER.size + 8:
        raise BadInput(f"{place.path} is truncated: it has {len(head)} bytes.")
    _, width, count, _, _, _, metric = HEADER.unpack_from(head)
    skip = HEADER.size + (4 if metric > 1 else 0)
    (numbers,) = struct.unpack_from("<q", head, skip)
    if width < 1 or count < 1 or numbers != width * count:
        raise BadInput(f"{place.path} is no flat FAISS index: {count} vectors of {width} are not {numbers} numbers.")
    return FlatRows(place, skip + 8, count, width, torch.float32)


class _Reconstructed:
    """The vectors of an index that is not flat, as faiss gives them back."""

    def __init__(self, place: Location) -> None:
        try:
            import faiss
        except ImportError:
            raise BadInput(f"{place.path} is no flat index: to read others, pip install 'headscan[faiss]'.") from None
        if place.remote:
            raise BadInput(f"{place.path} is no flat index: FAISS reads others from local files only.")
        try:
            self.index = faiss.read_index(place.path, faiss.IO_FLAG_MMAP)
            if hasattr(self.index, "make_direct_map"):
                self.index.make_direct_map()
            self.count, self.width, self.dtype = int(self.index.ntotal), int(self.index.d), torch.float32
            self.read(0, min(1, self.count))
        except RuntimeError as error:
            reason = str(error).splitlines()[0][:160]
            raise BadInput(f"{place.path} is no FAISS index that gives its vectors back: {reason}.") from error

    def read(self, first: int, last: int) -> Tensor:
        return torch.from_numpy(self.index.reconstruct_n(first, last - first))


@FORMATS.register("vllm")
class VllmFormat(StateFormat):
    """One .safetensors file a request: `hidden_states` [tokens, layers, width] and `token_ids` [tokens]."""

    title: ClassVar[str] = "vLLM's extracted hidden states"
    sentence: ClassVar[str] = (
        "A file a request, or a folder of them, each request a document; the files name no layers: site `captured.K` is the "
        "K-th of `eagle_aux_hidden_state_layer_ids`."
    )
    tried: ClassVar[str] = ""
    first: ClassVar[int] = 2

    def recognises(self, place: Location) -> bool:
        """Whether the first file holds the tensors of a request."""
        files = place.files(".safetensors") if place.is_folder else [place]
        if not files or files[0].suffix != ".safetensors" or not files[0].exists:
            return False
        try:
            return _request(files[0]) is not None
        except BadInput:  # said by the format that takes it by its ending
            return False

    def read(self, place: Location, field: str | None) -> Vectors:
        """Gives a site a captured layer."""
        requests = [_checked(file) for file in (place.files(".safetensors") if place.is_folder else [place])]
        layouts = {states.shape[1:] for states, _ in requests}
        if len(layouts) > 1:
            raise BadInput(f"The requests in {place.path} hold different layers or widths: {sorted(layouts)}.")
        layers, width = layouts.pop()
        whole = JoinedRows([states.rows(states.shape[0], layers * width) for states, _ in requests])
        return Vectors(
            place.name, {f"captured.{k}": rows for k, rows in enumerate(LayerRows.split(whole, layers))},
            ids=JoinedRows([ids.rows(ids.shape[0], 1) for _, ids in requests]),
            documents=NumberedParts([states.shape[0] for states, _ in requests]),
            notes=("Each request is a document; windows go on from one to the next.",),
        )  # fmt: skip


def _request(place: Location) -> tuple[StoredTensor, StoredTensor] | None:
    """The hidden states and token ids of a file; None where it holds others."""
    tensors = read_header(place)
    if set(tensors) != {"hidden_states", "token_ids"} or len(tensors["hidden_states"].shape) != 3:
        return None
    return tensors["hidden_states"], tensors["token_ids"]


def _checked(place: Location) -> tuple[StoredTensor, StoredTensor]:
    request = _request(place)
    if request is None:
        raise BadInput(
            f"{place.path} holds no request: hidden_states [tokens, layers, width] and token_ids are wanted."
        )
    states, ids = request
    if ids.shape != states.shape[:1]:
        raise BadInput(f"{place.path} holds {states.shape[0]} vectors but {list(ids.shape)} token ids.")
    return request


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
    """The content of `states.json`, which stands beside shards of safetensors.

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
        shard = StateShard(name, first, last, len(data), hashlib.sha256(data).hexdigest())
        index = replace(self, shards=[*self.shards, shard], mark=mark)
        index.write(folder)
        return index

    @classmethod
    def read(cls, place: Location) -> StoredIndex:
        """The index at a place; BadInput where it is damaged, or of a version that this one does not read."""
        content = place.json()
        if content.get("format") != LAYOUT or content.get("version") != VERSION:
            raise BadInput(f"{place.path} is of version {content.get('version')}; this headscan reads {VERSION}.")
        from pydantic import TypeAdapter, ValidationError

        own = {name: value for name, value in content.items() if name not in ("format", "version", "tokens")}
        try:
            return TypeAdapter(cls).validate_python(own)
        except ValidationError as error:
            raise BadInput(f"{place.path} is damaged: {error.errors()[0]['msg']}.") from error


def verify(folder: str) -> int:
    """Read every shard of a folder and hold it to its checksum; returns the number of vectors of each site.

    Raises BadInput where a shard is missing, or its bytes are not those that were written.
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
        return place.is_folder and (place / INDEX).exists

    def read(self, place: Location, field: str | None) -> Vectors:
        index = StoredIndex.read(place / INDEX)
        if not index.shards:
            raise BadInput(f"{place.path} holds no states yet: `headscan states` was interrupted at once.")
        names = [*(site.site for site in index.sites), "token_ids", "documents"]
        shards = [_rows(place / shard.file, shard, index.context, names) for shard in index.shards]
        rows: dict[str, Rows] = {name: JoinedRows([shard[name] for shard in shards]) for name in names}
        digest = hashlib.sha256("".join(shard.sha256 for shard in index.shards).encode()).hexdigest()
        notes = () if index.complete else ("Its writing was interrupted: this is the beginning of the text.",)
        return Vectors(
            place.name, {name: rows[name] for name in names[:-2]}, ids=rows["token_ids"], documents=rows["documents"],
            window=index.context, vocabulary=index.vocabulary, model=str(index.model.get("name", "")) or None,
            notes=notes, whole_identity=digest,
        )  # fmt: skip


def _rows(file: Location, shard: StateShard, context: int, names: list[str]) -> dict[str, Rows]:
    if not file.exists or file.size != shard.bytes:
        raise BadInput(f"{file.path} is missing or truncated: {shard.bytes:,} bytes were written.")
    tensors, windows = read_header(file), shard.last - shard.first
    for name in names:
        if name not in tensors or tensors[name].shape[:2] != (windows, context):
            raise BadInput(f"{file.path} does not hold {windows} windows of {context} at '{name}'.")
    return {name: tensors[name].rows(windows * context, (*tensors[name].shape, 1)[2]) for name in names}
