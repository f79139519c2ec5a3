""".safetensors: one file, or several of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import ClassVar

import torch

from headscan.run import BadInput
from headscan.states.format import FORMATS, StateFormat
from headscan.states.location import Location
from headscan.states.naming import by_depth
from headscan.states.rows import DTYPES, FlatRows, Rows
from headscan.states.vectors import DOCUMENTS, TOKENS, Vectors, of_shape

__all__ = ["SafetensorsFormat", "StoredTensor", "read_header"]


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
        """By its ending, or those of a folder's files."""
        return place.suffix == ".safetensors" or (place.is_folder and bool(place.files(".safetensors")))

    def read(self, place: Location, field: str | None) -> Vectors:
        """A site a tensor."""
        if place.suffix == ".safetensors" and not place.is_folder:
            return _file(place)
        return Vectors.joined(place.name, [_file(file) for file in place.files(".safetensors")])


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


def _file(place: Location) -> Vectors:
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
