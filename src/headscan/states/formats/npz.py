"""numpy's .npz."""

from __future__ import annotations

import io
import zipfile
from typing import ClassVar

import numpy as np
from torch import Tensor

from headscan.run import BadInput
from headscan.states.format import FORMATS, StateFormat
from headscan.states.formats.npy import flat_array
from headscan.states.location import Location
from headscan.states.objects import tensor_of
from headscan.states.rows import Rows, TensorRows
from headscan.states.vectors import DOCUMENTS, TOKENS, Vectors, of_shape

__all__ = ["NpzFormat"]


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
        """By its ending."""
        return place.suffix == ".npz"

    def read(self, place: Location, field: str | None) -> Vectors:
        """A site an array."""
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
