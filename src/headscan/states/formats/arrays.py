"""Arrays in files: numpy's, torch's and safetensors'."""

import io
import json
import lzma
import zipfile
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headscan.run import BadInput
from headscan.run.memory import unpackable
from headscan.states.location import Location, by_depth
from headscan.states.stored import of_object
from headscan.states.vectors import (
    DTYPES,
    FORMATS,
    Array,
    FlatRows,
    StateFormat,
    Vectors,
    stored_dtype,
)


@FORMATS.register("npy")
class NpyFormat(StateFormat):
    title = "numpy .npy"
    tried = "numpy"
    sentence = (
        "One array [vectors, width] or [windows, tokens, width]; its rows are read as needed."
    )
    endings = (".npy",)

    def read(self, place: Location, field: str | None) -> Vectors:
        return Vectors.of_arrays(
            place.name, {"vectors": _npy(place, 0, place.size, place.path)}, place.path
        )


def _npy(place: Location, start: int, end: int, name: str) -> Array:
    """The array of an .npy that lies in a file from byte `start` to `end`."""
    head = io.BytesIO(place.bytes(start, min(end, start + 2**16)))
    try:
        version = np.lib.format.read_magic(head)
        read: Any = (
            np.lib.format.read_array_header_1_0
            if version == (1, 0)
            else np.lib.format.read_array_header_2_0
        )
        shape, fortran, kind = read(head)
    except Exception as error:  # numpy's reader parses Python, and raises what that raises
        raise BadInput(
            f"{name} is no .npy file, or is damaged: {str(error).split('.')[0]}."
        ) from error
    if fortran and len(shape) > 1:
        raise BadInput(
            f"{name} is stored column by column (Fortran order): save numpy.ascontiguousarray of "
            "it."
        )
    dtype = stored_dtype(name, kind, kind.newbyteorder("="))
    offset = start + head.tell()

    def rows(count: int, width: int) -> FlatRows:
        if end - offset < (promised := count * width * dtype.itemsize):
            raise BadInput(
                f"{name} is truncated: its header promises {promised:,} bytes, and it has "
                f"{end - offset:,}."
            )
        return FlatRows(place, offset, count, width, dtype, swapped=not kind.isnative)

    return shape, rows


@FORMATS.register("npz")
class NpzFormat(StateFormat):
    title = "numpy .npz"
    tried = "numpy"
    sentence = (
        "Arrays by site, beside them `token_ids` and `documents`; read as needed, unpacked as "
        "they are read where they are compressed (numpy.savez_compressed)."
    )
    endings = (".npz",)

    def read(self, place: Location, field: str | None) -> Vectors:
        try:
            with zipfile.ZipFile(place.open()) as archive:
                members = {
                    entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()
                }
                arrays = {name: _member(archive, entry, place) for name, entry in members.items()}
                return Vectors.of_arrays(place.name, arrays, place.path)
        except (*DAMAGED, NotImplementedError, RuntimeError) as error:
            why = str(error).rstrip(".") or "it says that it is larger than the memory"
            raise BadInput(
                f"{place.path} is no .npz file, is truncated, or cannot be read: {why}."
            ) from error


DAMAGED = (zipfile.BadZipFile, EOFError, OSError, MemoryError, zlib.error, lzma.LZMAError)
"""What an archive raises whose bytes or sizes are not those that were written."""
HELD = 2**28
"""Bytes to which the packed arrays of an archive are unpacked and held where that much is free;
else only the rows asked for.
"""


class Unpacked:
    """A packed member of an archive as a place whose bytes are read in order; a reader that goes
    back unpacks it anew.
    """

    remote = True

    def __init__(
        self, archive: zipfile.ZipFile, entry: zipfile.ZipInfo, path: str, *, held: bool
    ) -> None:
        self.path = path
        self.size = entry.file_size
        self._file: Any = io.BytesIO(archive.read(entry)) if held else archive.open(entry)

    def bytes(self, start: int, end: int) -> bytes:
        try:
            self._file.seek(start)
            return bytes(self._file.read(end - start))
        except DAMAGED as error:
            raise BadInput(f"{self.path} cannot be unpacked: {str(error).rstrip('.')}.") from error


def _member(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, place: Location) -> Array:
    name = f"{place.path}, {entry.filename.removesuffix('.npy')}"
    if entry.compress_type == zipfile.ZIP_STORED:
        # A member begins with 30 bytes, its name and an extra field of its own.
        lengths = np.frombuffer(
            place.bytes(entry.header_offset + 26, entry.header_offset + 30), dtype="<u2"
        )
        start = entry.header_offset + 30 + int(lengths.sum())
        return _npy(place, start, start + entry.file_size, name)
    packed: Any = Unpacked(
        archive,
        entry,
        name,
        held=sum(one.file_size for one in archive.infolist()) <= min(HELD, unpackable()),
    )
    return _npy(packed, 0, packed.size, name)


@FORMATS.register("pytorch")
class PytorchFormat(StateFormat):
    title = "torch.save"
    tried = "torch"
    sentence = "A tensor, or a dict of tensors by site; mapped, and nothing in the file is run."

    def recognises(self, place: Location) -> bool:
        return place.suffix in (".pt", ".pth") and not place.is_folder

    def read(self, place: Location, field: str | None) -> Vectors:
        try:
            if place.remote:
                with place.open() as file:
                    content = torch.load(file, map_location="cpu", weights_only=True)
            else:
                content = torch.load(place.path, map_location="cpu", weights_only=True, mmap=True)
        except Exception as error:  # torch rebuilds what the file says, and raises what that raises
            reason = " ".join(str(error).split())[:120]
            raise BadInput(
                f"{place.path} holds no tensors, or is damaged: {reason.rstrip('.')}."
            ) from error
        if isinstance(content, dict):
            content = {name: value for name, value in content.items() if isinstance(value, Tensor)}
        for value in content.values() if isinstance(content, dict) else [content]:
            if isinstance(value, Tensor) and value.layout is not torch.strided:
                raise BadInput(
                    f"{place.path} holds a sparse tensor: save it dense (tensor.to_dense())."
                )
        return of_object(content, place.name)


@FORMATS.register("safetensors")
class SafetensorsFormat(StateFormat):
    title = "safetensors"
    tried = "safetensors"
    sentence = (
        "Tensors by site, beside them `token_ids` and `documents`; a file, or a folder of files "
        "whose vectors go on from one to the next by name."
    )

    def recognises(self, place: Location) -> bool:
        return place.suffix == ".safetensors" or (
            place.is_folder and bool(place.files(".safetensors"))
        )

    def read(self, place: Location, field: str | None) -> Vectors:
        files = place.files(".safetensors") if place.is_folder else [place]
        return Vectors.joined(place.name, [_safetensors(file) for file in files])


def _safetensors(place: Location) -> Vectors:
    tensors = read_header(place)
    for name in by_depth(tensors):
        if tensors[name].dtype is torch.bool:
            raise BadInput(f"{place.path} holds '{name}' in a dtype that no states have.")
    arrays = {name: (tensors[name].shape, tensors[name].rows) for name in by_depth(tensors)}
    return Vectors.of_arrays(place.name, arrays, place.path)


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in a .safetensors file, which begins at a byte; bool stands for dtypes that no
    states have.
    """

    place: Location
    dtype: torch.dtype
    shape: tuple[int, ...]
    offset: int

    def rows(self, count: int, width: int) -> FlatRows:
        return FlatRows(self.place, self.offset, count, width, self.dtype)


def read_header(place: Location) -> dict[str, StoredTensor]:
    """The tensors of a .safetensors file by name, in the order in which they lie there. Raises
    BadInput where it is no such file, or is truncated.
    """
    size = place.size
    length = int.from_bytes(place.bytes(0, 8), "little")
    if size < 8 or length > size - 8 or length > 100 * 2**20:
        raise BadInput(
            f"{place.path} is no .safetensors file, or is truncated: it has {size:,} bytes."
        )
    try:
        header = json.loads(place.bytes(8, 8 + length))
        header.pop("__metadata__", None)
        tensors = {}
        end = 8 + length
        for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
            dtype, (first, last) = DTYPES.get(entry["dtype"], torch.bool), entry["data_offsets"]
            if not 0 <= first <= last or {
                type(size) for size in (first, last, *entry["shape"])
            } != {int}:
                raise ValueError(f"{name} has no place in the file")
            tensors[name] = StoredTensor(place, dtype, tuple(entry["shape"]), 8 + length + first)
            end = max(end, 8 + length + last)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise BadInput(f"{place.path} is no .safetensors file: its header is damaged.") from error
    if end > size:
        raise BadInput(
            f"{place.path} is truncated: its header promises {end:,} bytes, and it has {size:,}."
        )
    return tensors
