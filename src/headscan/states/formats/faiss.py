"""A FAISS index."""

from __future__ import annotations

import struct
from typing import Any, ClassVar

import torch
from torch import Tensor

from headscan.run import BadInput
from headscan.states.format import FORMATS, StateFormat
from headscan.states.location import Location
from headscan.states.rows import FlatRows, Rows
from headscan.states.vectors import Vectors

__all__ = ["FaissFormat"]

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
        """By its ending."""
        return place.suffix in (".faiss", ".index")

    def read(self, place: Location, field: str | None) -> Vectors:
        """One site, `vectors`."""
        head = place.bytes(0, HEADER.size + 12)
        if len(head) < 8:
            raise BadInput(f"{place.path} is no FAISS index, or is truncated: it has {len(head)} bytes.")
        rows = _flat(place, head) if head[:4] in FLAT else _reconstructed(place)
        notes = () if isinstance(rows, FlatRows) else ("As the index reconstructs them; a compressing one loses.",)
        return Vectors(place.name, {"vectors": rows}, notes=notes)


def _flat(place: Location, head: bytes) -> FlatRows:
    if len(head) < HEADER.size + 8:
        raise BadInput(f"{place.path} is truncated: it has {len(head)} bytes.")
    _, width, count, _, _, _, metric = HEADER.unpack_from(head)
    skip = HEADER.size + (4 if metric > 1 else 0)
    (many,) = struct.unpack_from("<q", head, skip)
    if width < 1 or count < 1 or many != width * count:
        raise BadInput(f"{place.path} is no flat FAISS index: {count} vectors of {width} are not {many} numbers.")
    return FlatRows(place, skip + 8, count, width, torch.float32)


def _reconstructed(place: Location) -> Rows:
    try:
        import faiss
    except ImportError:
        raise BadInput(f"{place.path} is no flat index: to read others, pip install 'headscan[faiss]'.") from None
    if place.remote:
        raise BadInput(f"{place.path} is no flat index: FAISS reads others from local files only.")
    try:
        index = faiss.read_index(place.path, faiss.IO_FLAG_MMAP)
        if hasattr(index, "make_direct_map"):
            index.make_direct_map()
        rows = _Reconstructed(index)
        rows.read(0, min(1, rows.count))
    except RuntimeError as error:
        said = str(error).splitlines()[0]
        raise BadInput(f"{place.path} is no FAISS index that gives its vectors back: {said[:160]}.") from error
    return rows


class _Reconstructed:
    def __init__(self, index: Any) -> None:
        self.index, self.count, self.width, self.dtype = index, int(index.ntotal), int(index.d), torch.float32

    def read(self, first: int, last: int) -> Tensor:
        return torch.from_numpy(self.index.reconstruct_n(first, last - first))
