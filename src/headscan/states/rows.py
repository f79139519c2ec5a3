"""Vectors that can be read by their numbers: in memory, in a flat stretch of a file, in several files one after the other."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Protocol

import torch
from jaxtyping import Shaped
from torch import Tensor

from headscan.run import BadInput
from headscan.states.location import Location

__all__ = ["DTYPES", "FlatRows", "JoinedRows", "Rows", "SlicedRows", "TensorRows"]

DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8,
}  # fmt: skip
"""The numbers that states may be stored in, by the names that safetensors gives them."""


class Rows(Protocol):
    """Rows of numbers, read from `first` to `last` in their own dtype; token ids are rows of width 1."""

    @property
    def count(self) -> int:
        """How many there are."""

    @property
    def width(self) -> int:
        """Numbers of one."""

    @property
    def dtype(self) -> torch.dtype:
        """What they are stored in."""

    def read(self, first: int, last: int) -> Shaped[Tensor, "rows width"]:
        """The rows first ... last − 1; a tensor that the caller may keep, and must not change."""


class TensorRows:
    """Rows in memory.

    >>> TensorRows(torch.eye(3)).read(1, 3).tolist()
    [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """

    def __init__(self, rows: Shaped[Tensor, "n width"]) -> None:
        self.rows, (self.count, self.width), self.dtype = rows, rows.shape, rows.dtype

    def read(self, first: int, last: int) -> Tensor:
        """A view."""
        return self.rows[first:last]


class FlatRows:
    """Rows that lie one after the other in a file, from a byte on; only those asked for are read.

    Raises BadInput where the file is shorter than they are.
    """

    def __init__(
        self, place: Location, offset: int, count: int, width: int, dtype: torch.dtype, *, swapped: bool = False
    ) -> None:
        self.place, self.offset, self.count, self.width, self.dtype = place, offset, count, width, dtype
        self.swapped = swapped  # the other byte order than this machine's
        needed = offset + count * self._bytes
        if place.size < needed:
            raise BadInput(f"{place.path} is truncated: it has {place.size:,} bytes of {needed:,}.")

    @property
    def _bytes(self) -> int:
        return self.width * self.dtype.itemsize

    def read(self, first: int, last: int) -> Tensor:
        """See `Rows`."""
        start, size = self.offset + first * self._bytes, (last - first) * self._bytes
        data = bytearray(size)
        if self.place.remote:
            found = self.place.bytes(start, start + size)
            data[: len(found)] = found
            read = len(found)
        else:
            read = self._fill(memoryview(data), start)
        if read < size:
            raise BadInput(f"{self.place.path} is truncated: it ends at byte {start + read:,}.")
        rows = torch.frombuffer(data, dtype=self.dtype) if size else torch.empty(0, dtype=self.dtype)
        rows = rows.reshape(last - first, self.width)
        if self.swapped:
            rows = torch.from_numpy(rows.numpy().byteswap())
        return rows

    def _fill(self, data: memoryview, start: int) -> int:
        done = 0
        with open(self.place.path, "rb", buffering=0) as file:  # stores may have more files than may be open
            file.seek(start)
            while done < len(data):
                got = file.readinto(data[done:])
                if not got:
                    break
                done += got
        return done


class JoinedRows:
    """Rows of several parts, one after the other.

    >>> JoinedRows([TensorRows(torch.zeros(2, 1)), TensorRows(torch.ones(2, 1))]).read(1, 3).tolist()
    [[0.0], [1.0]]
    """

    def __init__(self, parts: Sequence[Rows]) -> None:
        self.parts = parts
        self.starts = [0, *accumulate(part.count for part in parts)]
        self.count, self.width, self.dtype = self.starts[-1], parts[0].width, parts[0].dtype

    def read(self, first: int, last: int) -> Tensor:
        """See `Rows`."""
        found = []
        at = bisect_right(self.starts, first) - 1
        while first < last:
            end = min(last, self.starts[at + 1])
            if end > first:
                found.append(self.parts[at].read(first - self.starts[at], end - self.starts[at]))
            first, at = end, at + 1
        return found[0] if len(found) == 1 else torch.cat(found)


class SlicedRows:
    """Some columns of rows that are stored together, such as one of several layers; the last ones read are kept, for the
    other columns."""

    def __init__(self, whole: Rows, start: int, stop: int, kept: dict[tuple[int, int], Tensor]) -> None:
        self.whole, self.start, self.stop, self._kept = whole, start, stop, kept
        self.count, self.width, self.dtype = whole.count, stop - start, whole.dtype

    def read(self, first: int, last: int) -> Tensor:
        """See `Rows`."""
        if (first, last) not in self._kept:
            self._kept.clear()
            self._kept[first, last] = self.whole.read(first, last)
        return self._kept[first, last][:, self.start : self.stop].contiguous()

    @classmethod
    def layers(cls, whole: Rows, many: int) -> list[SlicedRows]:
        """Rows [n, many · width] as `many` of width each."""
        width, kept = whole.width // many, dict[tuple[int, int], Tensor]()
        return [cls(whole, width * number, width * (number + 1), kept) for number in range(many)]
