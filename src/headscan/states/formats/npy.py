"""numpy's .npy."""

from __future__ import annotations

import io
from typing import Any, ClassVar

import numpy as np
import torch

from headscan.run import BadInput
from headscan.states.format import FORMATS, StateFormat
from headscan.states.location import Location
from headscan.states.rows import DTYPES, FlatRows
from headscan.states.vectors import Vectors, of_shape

__all__ = ["NpyFormat", "flat_array"]


@FORMATS.register("npy")
class NpyFormat(StateFormat):
    """One array; its rows are read as they are needed."""

    title: ClassVar[str] = "numpy .npy"
    sentence: ClassVar[str] = "One array [vectors, width] or [windows, tokens, width]; its rows are read as needed."
    tried: ClassVar[str] = "numpy"

    def recognises(self, place: Location) -> bool:
        """By its ending."""
        return place.suffix == ".npy"

    def read(self, place: Location, field: str | None) -> Vectors:
        """One site, `vectors`."""
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
