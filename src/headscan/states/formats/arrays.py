"""Arrays in files: numpy's, torch's and safetensors'."""

import io
import json
import lzma
import zipfile
import zlib
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headscan.run import BadInput
from headscan.run.memory import unpackable
from headscan.states.location import Location, by_depth
from headscan.states.precision import SCALES
from headscan.states.rows import DTYPES, Array, FlatRows, NoStates, stored_dtype
from headscan.states.stored import flat_items, of_object
from headscan.states.vectors import DOCUMENTS, FORMATS, TOKENS, StateFormat, Vectors, chosen

BESIDE = (*TOKENS, *DOCUMENTS, *SCALES)
"""The names of arrays that are not vectors themselves."""

LONGEST_NPY_HEADER = 2**16
LONGEST_SAFETENSORS_HEADER = 100 * 2**20
NAMES_SHOWN = 8

UNPACKED_BYTES = 2**28
"""The packed arrays of an archive are unpacked into memory where they take no more than this, and
that much is free; else only the requested rows are unpacked.
"""

DAMAGED = (zipfile.BadZipFile, EOFError, OSError, MemoryError, zlib.error, lzma.LZMAError)
"""The exceptions of an archive whose bytes or sizes are not those that were written."""


@FORMATS.register("npy")
class NpyFormat(StateFormat):
    title = "numpy .npy"
    tried = "numpy"
    sentence = (
        "One array [vectors, width] or [windows, tokens, width]; its rows are read as needed."
    )
    endings = (".npy",)

    def read(self, location: Location, _field: str | None) -> Vectors:
        array = _npy(location, 0, location.size, location.path)
        return Vectors.of_arrays(location.name, {"vectors": array}, location.path)


def _npy(location: Location, start: int, end: int, name: str) -> Array:
    """Return the array of an .npy that lies in a file from byte `start` to `end`."""
    header = io.BytesIO(location.bytes(start, min(end, start + LONGEST_NPY_HEADER)))
    try:
        version = np.lib.format.read_magic(header)
        read_header: Any = np.lib.format.read_array_header_2_0
        if version == (1, 0):
            read_header = np.lib.format.read_array_header_1_0
        shape, fortran, kind = read_header(header)
    except Exception as error:  # numpy parses Python here, and raises what that raises
        reason = str(error).split(".")[0]
        raise BadInput(f"{name} is no .npy file, or is damaged: {reason}.") from error
    if fortran and len(shape) > 1:
        raise BadInput(
            f"{name} is stored column by column (Fortran order): save numpy.ascontiguousarray of "
            "it."
        )
    dtype = stored_dtype(name, kind, kind.newbyteorder("="))
    offset = start + header.tell()

    def rows(count: int, width: int) -> FlatRows:
        promised = count * width * dtype.itemsize
        available = end - offset
        if available < promised:
            raise BadInput(
                f"{name} is truncated: its header promises {promised:,} bytes, and it has "
                f"{available:,}."
            )
        return FlatRows(location, offset, count, width, dtype, swapped=not kind.isnative)

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

    def read(self, location: Location, field: str | None) -> Vectors:
        try:
            with zipfile.ZipFile(location.open()) as archive:
                arrays = _members(archive, location, field)
                return Vectors.of_arrays(location.name, arrays, location.path, field)
        except (*DAMAGED, NotImplementedError, RuntimeError) as error:
            reason = str(error).rstrip(".") or "it says that it is larger than the memory"
            raise BadInput(
                f"{location.path} is no .npz file, is truncated, or cannot be read: {reason}."
            ) from error


class Unpacked:
    """A packed member of an archive, as a location whose bytes are read in order.

    A reader that goes back unpacks it again. `in_memory`: it is unpacked at once.
    """

    remote = True

    def __init__(
        self, archive: zipfile.ZipFile, entry: zipfile.ZipInfo, path: str, *, in_memory: bool
    ) -> None:
        self.path = path
        self.size = entry.file_size
        self._file: Any = io.BytesIO(archive.read(entry)) if in_memory else archive.open(entry)

    def bytes(self, start: int, end: int) -> bytes:
        """Return the unpacked bytes from start to end."""
        try:
            self._file.seek(start)
            return bytes(self._file.read(end - start))
        except DAMAGED as error:
            raise BadInput(f"{self.path} cannot be unpacked: {str(error).rstrip('.')}.") from error


def _members(archive: zipfile.ZipFile, location: Location, field: str | None) -> dict[str, Array]:
    """Return the arrays of an archive; BadInput where one that is read cannot hold states."""
    names = [entry.filename.removesuffix(".npy") for entry in archive.infolist()]
    sites = [name for name in names if name not in BESIDE]
    wanted = chosen(location.path, sites, field)
    arrays = {}
    for name, entry in zip(names, archive.infolist(), strict=True):
        if name in wanted:
            arrays[name] = _member(archive, entry, location)
        elif name in BESIDE:
            with suppress(NoStates):  # texts, for example
                arrays[name] = _member(archive, entry, location)
    return arrays


def _member(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, location: Location) -> Array:
    """Return the array in a member of an archive."""
    name = f"{location.path}, {entry.filename.removesuffix('.npy')}"
    if entry.compress_type == zipfile.ZIP_STORED:
        # A member begins with 30 bytes; the last four are the lengths of its name and of an extra
        # field, which follow.
        end_of_header = entry.header_offset + 30
        lengths = np.frombuffer(location.bytes(end_of_header - 4, end_of_header), dtype="<u2")
        start = end_of_header + int(lengths.sum())
        return _npy(location, start, start + entry.file_size, name)
    unpacked_bytes = sum(member.file_size for member in archive.infolist())
    in_memory = unpacked_bytes <= min(UNPACKED_BYTES, unpackable())
    unpacked: Any = Unpacked(archive, entry, name, in_memory=in_memory)
    return _npy(unpacked, 0, unpacked.size, name)


@FORMATS.register("pytorch")
class PytorchFormat(StateFormat):
    title = "torch.save"
    tried = "torch"
    sentence = (
        "A tensor, or dicts, lists and tuples of tensors, in each other, by site; mapped, and "
        "nothing in the file is run."
    )

    def recognises(self, location: Location) -> bool:
        return location.suffix in (".pt", ".pth") and not location.is_folder

    def read(self, location: Location, field: str | None) -> Vectors:
        content = _torch_content(location)
        if isinstance(content, Tensor):
            content = {"vectors": content}
        leaves = flat_items(content)
        tensors = {name: leaf for name, leaf in leaves.items() if isinstance(leaf, Tensor)}
        if leaves and not tensors:
            names = ", ".join(list(leaves)[:NAMES_SHOWN])
            raise BadInput(f"{location.path} holds no tensors; it has: {names}.")
        if any(tensor.layout is not torch.strided for tensor in tensors.values()):
            raise BadInput(
                f"{location.path} holds a sparse tensor: save it dense (tensor.to_dense())."
            )
        return of_object(tensors, location.name, field)


def _torch_content(location: Location) -> Any:
    """Return the content of a file of torch.save; local files are mapped."""
    try:
        if not location.remote:
            return torch.load(location.path, map_location="cpu", weights_only=True, mmap=True)
        with location.open() as file:
            return torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # torch rebuilds what the file says, and raises what that raises
        reason = " ".join(str(error).split())[:120]
        raise BadInput(
            f"{location.path} holds no tensors, or is damaged: {reason.rstrip('.')}."
        ) from error


@FORMATS.register("safetensors")
class SafetensorsFormat(StateFormat):
    title = "safetensors"
    tried = "safetensors"
    sentence = (
        "Tensors by site, beside them `token_ids` and `documents`; a file, or a folder of files "
        "whose vectors go on from one to the next by name."
    )

    def recognises(self, location: Location) -> bool:
        if location.suffix == ".safetensors":
            return True
        return location.is_folder and bool(location.files(".safetensors"))

    def read(self, location: Location, field: str | None) -> Vectors:
        files = location.files(".safetensors") if location.is_folder else [location]
        return Vectors.joined(location.name, [_safetensors(file, field) for file in files])


def _safetensors(location: Location, field: str | None) -> Vectors:
    tensors = read_header(location)
    wanted = chosen(location.path, [name for name in tensors if name not in BESIDE], field)
    arrays: dict[str, Array] = {}
    for name in by_depth(tensors):
        tensor = tensors[name]
        if tensor.dtype is not torch.bool and (name in wanted or name in BESIDE):
            arrays[name] = (tensor.shape, tensor.rows)
        elif name in wanted:
            raise BadInput(f"{location.path} holds '{name}' in a dtype that no states have.")
    return Vectors.of_arrays(location.name, arrays, location.path, field)


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in a .safetensors file, which begins at byte `offset`.

    Its dtype is bool where it is stored in a dtype that states cannot have.
    """

    location: Location
    dtype: torch.dtype
    shape: tuple[int, ...]
    offset: int

    def rows(self, count: int, width: int) -> FlatRows:
        """Return its numbers as rows."""
        return FlatRows(self.location, self.offset, count, width, self.dtype)


def read_header(location: Location) -> dict[str, StoredTensor]:
    """Return the tensors of a .safetensors file by name, in the order in which they lie there.

    Raises BadInput where it is no such file, or is truncated.
    """
    size = location.size
    length = int.from_bytes(location.bytes(0, 8), "little")
    start = 8 + length  # of the data
    if size < 8 or start > size or length > LONGEST_SAFETENSORS_HEADER:
        raise BadInput(
            f"{location.path} is no .safetensors file, or is truncated: it has {size:,} bytes."
        )
    tensors = {}
    end = start
    try:
        header = json.loads(location.bytes(8, start))
        header.pop("__metadata__", None)
        for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
            first, last = entry["data_offsets"]
            shape = tuple(entry["shape"])
            whole_numbers = all(type(number) is int for number in (first, last, *shape))
            if not 0 <= first <= last or not whole_numbers:
                raise ValueError(f"{name} has no place in the file")
            dtype = DTYPES.get(entry["dtype"], torch.bool)
            tensors[name] = StoredTensor(location, dtype, shape, start + first)
            end = max(end, start + last)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise BadInput(
            f"{location.path} is no .safetensors file: its header is damaged."
        ) from error
    if end > size:
        raise BadInput(
            f"{location.path} is truncated: its header promises {end:,} bytes, and it has {size:,}."
        )
    return tensors
