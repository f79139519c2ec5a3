"""The activation caches of dictionary_learning."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from headscan.run import BadInput
from headscan.states.location import Location, by_depth, site_of_hook
from headscan.states.stored import of_object, tensor_of
from headscan.states.vectors import (
    DOCUMENTS,
    DTYPES,
    FORMATS,
    TOKENS,
    FlatRows,
    JoinedRows,
    Rows,
    StateFormat,
    TensorRows,
    Vectors,
    of_shape,
)


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
        return place.is_folder and bool(place.files(".memmap"))

    def read(self, place: Location, field: str | None) -> Vectors:
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


# ---- numpy's .npy.


@FORMATS.register("npy")
class NpyFormat(StateFormat):
    """One array; its rows are read as they are needed."""

    title: ClassVar[str] = "numpy .npy"
    sentence: ClassVar[str] = "One array [vectors, width] or [windows, tokens, width]; its rows are read as needed."
    tried: ClassVar[str] = "numpy"

    def recognises(self, place: Location) -> bool:
        return place.suffix == ".npy"

    def read(self, place: Location, field: str | None) -> Vectors:
        rows, window = flat_array(place, 0, place.size, place.path)
        return Vectors(place.name, {"vectors": rows}, window=window)


def flat_array(place: Location, start: int, end: int, name: str) -> tuple[FlatRows, int | None]:
    """The rows of an .npy that lies in a file from byte `start` to `end`, and their window.

    Raises:
        BadInput: it is no .npy, truncated, of Python objects, or in Fortran order.
    """
    head = io.BytesIO(place.bytes(start, min(end, start + 2**16)))
    try:
        version = np.lib.format.read_magic(head)
        read: Any = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, kind = read(head)
    except ValueError as error:
        raise BadInput(f"{name} is no .npy file, or is damaged: {str(error).split('.')[0]}.") from error
    if fortran and len(shape) > 1:
        raise BadInput(f"{name} is stored column by column (Fortran order): save numpy.ascontiguousarray of it.")
    swapped = not kind.isnative
    try:
        dtype = torch.from_numpy(np.empty(0, kind.newbyteorder("="))).dtype
    except TypeError:
        dtype = torch.bool
    if dtype not in DTYPES.values():
        raise BadInput(f"{name} holds {kind}, which no states are.")
    count, width, window = of_shape(name, "it", shape)
    offset, promised = start + head.tell(), count * width * dtype.itemsize
    if end - offset < promised:
        raise BadInput(f"{name} is truncated: its header promises {promised:,} bytes, and it has {end - offset:,}.")
    return FlatRows(place, offset, count, width, dtype, swapped=swapped), window


# ---- numpy's .npz.


@FORMATS.register("npz")
class NpzFormat(StateFormat):
    """Several arrays by name."""

    title: ClassVar[str] = "numpy .npz"
    sentence: ClassVar[str] = (
        "Arrays by site, beside them `token_ids` and `documents`; read as needed (numpy.savez), or whole where they are "
        "compressed (numpy.savez_compressed)."
    )
    tried: ClassVar[str] = "numpy"

    def recognises(self, place: Location) -> bool:
        return place.suffix == ".npz"

    def read(self, place: Location, field: str | None) -> Vectors:
        sites, extra, windows = dict[str, Rows](), dict[str, Rows](), set[int | None]()
        try:
            with zipfile.ZipFile(place.open()) as archive:
                for entry in archive.infolist():
                    name = entry.filename.removesuffix(".npy")
                    if name in TOKENS + DOCUMENTS:
                        kind = TOKENS[0] if name in TOKENS else DOCUMENTS[0]
                        extra[kind] = TensorRows(_whole(archive, entry, place).reshape(-1, 1))
                    elif entry.compress_type == zipfile.ZIP_STORED:
                        # A member begins with 30 bytes, its name and an extra field of its own.
                        lengths = place.bytes(entry.header_offset + 26, entry.header_offset + 30)
                        skip = 30 + int.from_bytes(lengths[:2], "little") + int.from_bytes(lengths[2:], "little")
                        start = entry.header_offset + skip
                        sites[name], window = flat_array(place, start, start + entry.file_size, f"{place.path}, {name}")
                        windows.add(window)
                    else:
                        array = _whole(archive, entry, place)
                        count, width, window = of_shape(place.path, f"'{name}'", array.shape)
                        sites[name] = TensorRows(array.reshape(count, width))
                        windows.add(window)
        except (zipfile.BadZipFile, EOFError, OSError) as error:
            raise BadInput(f"{place.path} is no .npz file, or is truncated: {str(error).rstrip('.')}.") from error
        if len(windows) > 1:
            raise BadInput(f"{place.path} has windows at some sites and none, or others, at other sites.")
        return Vectors(
            place.name, sites, ids=extra.get(TOKENS[0]), documents=extra.get(DOCUMENTS[0]),
            window=next(iter(windows), None),
        )  # fmt: skip


def _whole(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, place: Location) -> Tensor:
    try:
        return tensor_of(
            np.load(io.BytesIO(archive.read(entry)), allow_pickle=False), f"{place.path}'s {entry.filename}"
        )
    except ValueError as error:
        raise BadInput(f"{place.path}, {entry.filename} is no array of numbers: {error}.") from error


# ---- Tensors that torch.save wrote, also in the folders of activault.


@FORMATS.register("pytorch")
class PytorchFormat(StateFormat):
    """A tensor, or a dict of tensors."""

    title: ClassVar[str] = "torch.save"
    sentence: ClassVar[str] = "A tensor, or a dict of tensors by site; mapped, and nothing in the file is run."
    tried: ClassVar[str] = "torch"

    def recognises(self, place: Location) -> bool:
        return place.suffix in (".pt", ".pth") and not place.is_folder

    def read(self, place: Location, field: str | None) -> Vectors:
        return of_object(_load(place), place.name)


@FORMATS.register("activault")
class ActivaultFormat(StateFormat):
    """A folder a hook with `metadata.json` and files of `states` [windows, T, d] and `input_ids`."""

    title: ClassVar[str] = "activault"
    sentence: ClassVar[str] = (
        "The folder of a run, or of one of its hooks: files of `states` and `input_ids`, a site a hook."
    )
    tried: ClassVar[str] = ""
    first: ClassVar[int] = 1

    def recognises(self, place: Location) -> bool:
        return (
            place.is_folder
            and ((place / "cfg.json").exists or (place / "metadata.json").exists)
            and bool(place.files(".pt"))
        )

    def read(self, place: Location, field: str | None) -> Vectors:
        folders = dict[str, list[Location]]()
        for file in place.files(".pt"):
            folders.setdefault(file.path.rsplit("/", 1)[0], []).append(file)
        hooks = {site_of_hook(path.rsplit("/", 1)[1]): files for path, files in sorted(folders.items())}
        found = {site: Vectors.joined(site, [_pytorch_file(one) for one in files]) for site, files in hooks.items()}
        first = next(iter(found.values()))
        return Vectors(
            place.name, {site: one.sites["states"] for site, one in found.items()}, ids=first.ids, window=first.window
        )


def _pytorch_file(place: Location) -> Vectors:
    held = _load(place)
    if not isinstance(held, dict) or "states" not in held:
        raise BadInput(f"{place.path} holds no 'states'.")
    return of_object({name: held[name] for name in ("states", "input_ids") if name in held}, place.path)


def _load(place: Location) -> Any:
    try:
        if place.remote:
            with place.open() as file:
                found = torch.load(file, map_location="cpu", weights_only=True)
        else:
            found = torch.load(place.path, map_location="cpu", weights_only=True, mmap=True)
    except (RuntimeError, pickle.UnpicklingError, EOFError, OSError, ValueError) as error:
        said = " ".join(str(error).split())[:120]
        raise BadInput(f"{place.path} holds no tensors, or is damaged: {said.rstrip('.')}.") from error
    if isinstance(found, dict):
        found = {name: value for name, value in found.items() if isinstance(value, Tensor)}
    return found


# ---- .safetensors: one file, or several of them.


@FORMATS.register("safetensors")
class SafetensorsFormat(StateFormat):
    """Tensors by site."""

    title: ClassVar[str] = "safetensors"
    sentence: ClassVar[str] = (
        "Tensors by site, beside them `token_ids` and `documents`; a file, or a folder of files whose vectors go on from "
        "one to the next by name."
    )
    tried: ClassVar[str] = "safetensors"

    def recognises(self, place: Location) -> bool:
        return place.suffix == ".safetensors" or (place.is_folder and bool(place.files(".safetensors")))

    def read(self, place: Location, field: str | None) -> Vectors:
        if place.suffix == ".safetensors" and not place.is_folder:
            return _safetensors_file(place)
        return Vectors.joined(place.name, [_safetensors_file(file) for file in place.files(".safetensors")])


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in a file: its dtype as the header names it, shape, and the byte at which it begins."""

    place: Location
    dtype: torch.dtype
    shape: tuple[int, ...]
    offset: int

    def rows(self, count: int, width: int) -> FlatRows:
        """It as rows."""
        return FlatRows(self.place, self.offset, count, width, self.dtype)


def read_header(place: Location) -> tuple[dict[str, StoredTensor], dict[str, str]]:
    """The tensors of a file by name, in the order in which they lie there, and its metadata.

    Raises:
        BadInput: it is no such file, or is truncated.
    """
    size = place.size
    length = int.from_bytes(place.bytes(0, 8), "little")
    if size < 8 or length > size - 8 or length > 100 * 2**20:
        raise BadInput(f"{place.path} is no .safetensors file, or is truncated: it has {size:,} bytes.")
    try:
        header = json.loads(place.bytes(8, 8 + length))
        metadata = header.pop("__metadata__", {})
        found = {
            name: StoredTensor(
                place, DTYPES.get(one["dtype"], torch.bool), tuple(one["shape"]), 8 + length + one["data_offsets"][0]
            )
            for name, one in sorted(header.items(), key=lambda item: item[1]["data_offsets"])
        }  # fmt: skip
        end = 8 + length + max((one["data_offsets"][1] for one in header.values()), default=0)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise BadInput(f"{place.path} is no .safetensors file: its header is damaged.") from error
    if end > size:
        raise BadInput(f"{place.path} is truncated: its header promises {end:,} bytes, and it has {size:,}.")
    return found, metadata


def _safetensors_file(place: Location) -> Vectors:
    tensors, _ = read_header(place)
    sites, extra, windows = dict[str, Rows](), dict[str, Rows](), set[int | None]()
    for name in by_depth(tensors):
        one = tensors[name]
        if one.dtype is torch.bool:
            raise BadInput(f"{place.path} holds '{name}' in a dtype that no states have.")
        if name in TOKENS + DOCUMENTS:
            extra[TOKENS[0] if name in TOKENS else DOCUMENTS[0]] = one.rows(_many(one.shape), 1)
            continue
        count, width, window = of_shape(place.path, f"'{name}'", one.shape)
        sites[name] = one.rows(count, width)
        windows.add(window)
    if len(windows) > 1:
        raise BadInput(f"{place.path} has windows at some sites and none, or others, at other sites.")
    return Vectors(
        place.name, sites, ids=extra.get(TOKENS[0]), documents=extra.get(DOCUMENTS[0]), window=next(iter(windows), None)
    )


def _many(shape: tuple[int, ...]) -> int:
    return int(torch.tensor(shape).prod()) if shape else 1
