"""What a format finds in a store: rows by site, and the tokens and documents that they are of."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import ClassVar, Protocol

import torch
from jaxtyping import Shaped
from torch import Tensor

from headscan.run import BadInput, Registry
from headscan.states.location import Location

# ---- Vectors that can be read by their numbers: in memory, in a flat stretch of a file, in several files one after the other.

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


TOKENS = ("token_ids", "input_ids", "tokens", "token_id")
DOCUMENTS = ("documents", "document_ids", "document_id", "document")
"""What arrays of token ids, and of the numbers of documents, are called in files that say no more of themselves."""
PROBED = 64  # rows that stand for all of them in a store's identity


@dataclass(frozen=True)
class Vectors:
    """The vectors of a store: row k of every site is of token k.

    Attributes:
        name: of the store, in sentences.
        sites: rows by the name of the site, in order.
        ids: token ids, rows of width 1, or None. documents: the number of each token's document, or None.
        window: rows of a window, where the store is made of whole windows; else whoever reads cuts them.
        vocabulary: one more than the largest token id, where the store says it.
        model: what the store says of the model that made it. notes: what a reader of its numbers must know.
        whole_identity: what identifies it, where the store says that; else rows are looked at.

    Raises:
        BadInput: there are no vectors, or not the same number at every site.
    """

    name: str
    sites: Mapping[str, Rows]
    ids: Rows | None = None
    documents: Rows | None = None
    window: int | None = None
    vocabulary: int | None = None
    model: str | None = None
    notes: tuple[str, ...] = ()
    whole_identity: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.sites:
            raise BadInput(f"{self.name} holds no vectors.")
        counts = {site: rows.count for site, rows in self.sites.items()}
        if len(set(counts.values())) > 1:
            said = ", ".join(f"{site} {count:,}" for site, count in list(counts.items())[:4])
            raise BadInput(f"{self.name} holds different numbers of vectors at different sites: {said}.")
        for what, rows in (("token ids", self.ids), ("documents", self.documents)):
            if rows is not None and rows.count != self.count:
                raise BadInput(f"{self.name} holds {self.count:,} vectors but {rows.count:,} {what}.")
        for site, rows in self.sites.items():
            if rows.count == 0 or rows.width == 0:
                raise BadInput(f"{self.name} holds no numbers at {site}: its shape is {rows.count} x {rows.width}.")

    @property
    def count(self) -> int:
        return next(iter(self.sites.values())).count

    def identity(self) -> str:
        """A hash of names, shapes, dtypes and of 64 rows of each site, evenly spaced."""
        digest = hashlib.sha256((self.whole_identity or "").encode())
        for site, rows in self.sites.items():
            digest.update(f"{site}/{rows.count}/{rows.width}/{rows.dtype}/{self.window}".encode())
            if self.whole_identity is None:
                step = max(1, rows.count // PROBED)
                for number in range(0, rows.count, step):
                    digest.update(rows.read(number, number + 1).contiguous().view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()

    @classmethod
    def joined(cls, name: str, parts: Sequence[Vectors]) -> Vectors:
        """Several stores of the same sites, one after the other; without documents of their own, each is one."""
        if not parts:
            raise BadInput(f"The folder {name} holds no states.")
        first = parts[0]
        for part in parts:
            if {s: (r.width, r.dtype) for s, r in part.sites.items()} != {
                s: (r.width, r.dtype) for s, r in first.sites.items()
            } or part.window != first.window:
                raise BadInput(f"{part.name} does not go with {first.name}: its sites, widths or dtypes are others.")
        if len(parts) == 1:
            return first
        sites = {site: JoinedRows([part.sites[site] for part in parts]) for site in first.sites}
        ids = [part.ids for part in parts if part.ids is not None]
        if len(ids) not in (0, len(parts)):
            raise BadInput(f"Some parts of {name} have token ids and some have none.")
        documents = [part.documents for part in parts if part.documents is not None]
        return cls(
            name, sites, ids=JoinedRows(ids) if ids else None,
            documents=JoinedRows(documents) if len(documents) == len(parts) else None, window=first.window,
            vocabulary=None if any(p.vocabulary is None for p in parts) else max(p.vocabulary or 0 for p in parts),
            model=first.model, notes=first.notes,
        )  # fmt: skip


class NumberedParts:
    """Documents that are one a part: part k's rows all have the number k."""

    def __init__(self, counts: Sequence[int]) -> None:
        self.ends = torch.tensor(counts).cumsum(0)
        self.count, self.width, self.dtype = int(self.ends[-1]), 1, torch.int64

    def read(self, first: int, last: int) -> Tensor:
        """See `Rows`."""
        return torch.bucketize(torch.arange(first, last), self.ends, right=True)[:, None]


def of_shape(name: str, what: str, shape: Sequence[int]) -> tuple[int, int, int | None]:
    """Rows, width and window of an array of this shape: [n, d], or [windows, T, d].

    Raises:
        BadInput: it has another number of dimensions.

    >>> of_shape("a.npy", "it", (5, 8, 3)), of_shape("a.npy", "it", (40, 3))
    ((40, 3, 8), (40, 3, None))
    """
    if len(shape) == 2:
        return shape[0], shape[1], None
    if len(shape) == 3:
        return shape[0] * shape[1], shape[2], shape[1] or None
    raise BadInput(
        f"{name}: states have the shape [vectors, width] or [windows, tokens, width], and {what} has {list(shape)}."
    )


# ---- What a format of stored states is, and how the one of a place is found.


class StateFormat(ABC):
    """A way in which people store states. Subclass it in a file of headscan/states/formats, or of a plug-in.

    Attributes:
        title: of the documentation. sentence: what it is. tried: whether the tests hold it to files that the real library
            wrote; else it was written from that library's documentation. first: asked before others that would take the
            place too.
    """

    title: ClassVar[str]
    sentence: ClassVar[str]
    tried: ClassVar[str]
    first: ClassVar[int] = 0

    @abstractmethod
    def recognises(self, place: Location) -> bool:
        """Whether a place is of this format, from names alone as far as that can be."""

    @abstractmethod
    def read(self, place: Location, field: str | None) -> Vectors:
        """What is there; `field` names the column, where the user says one.

        Raises:
            BadInput: it is truncated, of another format, or its shapes are none of states.
        """


FORMATS: Registry[type[StateFormat]] = Registry("format", "headscan.states.formats")
"""All formats of stored states."""


def read_states(path: str, field: str | None = None) -> Vectors | None:
    """The stored states at a path or URL; None where no format knows the place.

    `PATH#SITE` is one site of it.

    Raises:
        BadInput: there is nothing at a URL; what is there cannot be read.
    """
    whole, _, site = path.partition("#")
    place = Location(whole)
    if place.remote and not place.exists:
        raise BadInput(f"There is nothing at {whole}.")
    for known in sorted(FORMATS.values(), key=lambda one: -one.first):
        if known().recognises(place):
            break
    else:
        if place.remote:
            raise BadInput(f"{whole} is of no format of states; there are: {', '.join(FORMATS)}.")
        return None
    found = known().read(place, field)
    if not site:
        return found
    if site not in found.sites:
        raise BadInput(f"{whole} has no site '{site}'; it has: {', '.join(found.sites)}.")
    from dataclasses import replace

    return replace(found, sites={site: found.sites[site]})
