"""Rows of stored numbers: in memory, in files, joined."""

import math
import os
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, Protocol

import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor

from headscan.run import BadInput
from headscan.states.location import Location

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
}
"""The dtypes that states may be stored in, by the names that safetensors gives them."""

EIGHT_BITS = (torch.int8, torch.uint8)
"""The whole numbers that vectors may be stored in; larger ones are read where the user names them.
"""


class NoStates(BadInput):
    """Raised for numbers of a kind that states cannot be of."""


def stored_dtype(name: str, kind: Any, numpy_kind: Any) -> torch.dtype:
    """Return torch's dtype for numbers of a kind; NoStates where states cannot be of it.

    Args:
        name: of the file or column, for the message.
        kind: as its format names it.
        numpy_kind: the same kind in numpy.
    """
    try:
        dtype = torch.from_numpy(np.empty(0, numpy_kind)).dtype
    except TypeError:
        dtype = torch.bool
    if dtype not in DTYPES.values():
        raise NoStates(f"{name} holds {kind}, which no states are.")
    return dtype


class Rows(Protocol):
    """`count` rows of `width` numbers in the dtype that they are stored in.

    Token ids are rows of width 1.
    """

    @property
    def count(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def dtype(self) -> torch.dtype: ...
    def read(self, first: int, last: int) -> Shaped[Tensor, "rows width"]:
        """Return the rows first ... last − 1: a tensor that the caller may keep, but not change."""


class TensorRows:
    """Rows in memory; reading gives a view.

    >>> TensorRows(torch.eye(3)).read(1, 3).tolist()
    [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """

    def __init__(self, rows: Shaped[Tensor, "n width"]) -> None:
        self.rows = rows
        self.count, self.width = rows.shape
        self.dtype = rows.dtype

    def read(self, first: int, last: int) -> Tensor:
        return self.rows[first:last]


class FloatRows:
    """Rows of whole numbers as floating point numbers."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.count = rows.count
        self.width = rows.width
        self.dtype = torch.float32

    def read(self, first: int, last: int) -> Tensor:
        return self.rows.read(first, last).float()


class FlatRows:
    """Consecutive rows in a file, from byte `offset` on; only the requested ones are read.

    `swapped`: the byte order is not this machine's. Raises BadInput where the file is shorter than
    its rows, and where a local file is another one, or has another content, than at first.
    """

    def __init__(
        self,
        location: Location,
        offset: int,
        count: int,
        width: int,
        dtype: torch.dtype,
        *,
        swapped: bool = False,
    ) -> None:
        self.location = location
        self.offset = offset
        self.count = count
        self.width = width
        self.dtype = dtype
        self.swapped = swapped
        self._row_bytes = width * dtype.itemsize
        needed = offset + count * self._row_bytes
        size = location.size
        if size < needed:
            raise BadInput(f"{location.path} is truncated: it has {size:,} bytes of {needed:,}.")
        self._stamp = None if location.remote else _stamp(os.stat(location.path))

    def read(self, first: int, last: int) -> Tensor:
        data = self._bytes(self.offset + first * self._row_bytes, (last - first) * self._row_bytes)
        if not data:
            return torch.empty(0, dtype=self.dtype).reshape(last - first, self.width)
        rows = torch.frombuffer(data, dtype=self.dtype).reshape(last - first, self.width)
        return torch.from_numpy(rows.numpy().byteswap()) if self.swapped else rows

    def _bytes(self, start: int, size: int) -> bytearray:
        """Return `size` bytes from `start` on, in memory that may be written."""
        data = bytearray(size)
        if self.location.remote:
            content = self.location.bytes(start, start + size)
            count = len(content)
            data[:count] = content
        else:  # opened for each reading: stores may have more files than may be open at once
            with open(self.location.path, "rb") as file:
                if _stamp(os.fstat(file.fileno())) != self._stamp:
                    raise BadInput(
                        f"{self.location.path} was changed while it was read: run again."
                    )
                file.seek(start)
                count = file.readinto(data)
        if count < size:
            raise BadInput(f"{self.location.path} is truncated: it ends at byte {start + count:,}.")
        return data


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    """Return what changes where a file is replaced, or written to."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


class JoinedRows:
    """The rows of several parts, one part after the other.

    >>> zeros, ones = (TensorRows(torch.full((2, 1), value)) for value in (0.0, 1.0))
    >>> JoinedRows([zeros, ones]).read(1, 3).tolist()
    [[0.0], [1.0]]
    """

    def __init__(self, parts: Sequence[Rows]) -> None:
        self.parts = parts
        self.starts = [0, *accumulate(part.count for part in parts)]
        self.count = self.starts[-1]
        self.width = parts[0].width
        self.dtype = parts[0].dtype

    def read(self, first: int, last: int) -> Tensor:
        pieces = []
        number = bisect_right(self.starts, first) - 1
        while first < last:
            start = self.starts[number]
            end = min(last, self.starts[number + 1])
            if end > first:
                pieces.append(self.parts[number].read(first - start, end - start))
            first = end
            number += 1
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)


Array = tuple[Sequence[int], Callable[[int, int], Rows]]
"""The shape of a stored array, and a function of a count and a width that gives its rows."""


def decoded_array(array: Array) -> tuple[int, Rows]:
    """Return the size of an array, and all of its numbers as one row."""
    shape, rows = array
    size = math.prod(shape)
    return size, rows(1, size)
