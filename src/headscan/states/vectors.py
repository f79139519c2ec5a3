"""What a format finds in a store: rows by site, and the tokens and documents that they are of."""

import hashlib
import math
import os
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor

from headscan.model.sentence import SENTENCE
from headscan.run import BadInput, Registry
from headscan.states.location import Location

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
}
"""The numbers that states may be stored in, by the names that safetensors gives them."""
TOKENS = ("token_ids", "input_ids", "tokens", "token_id")
DOCUMENTS = ("documents", "document_ids", "document_id", "document")
"""What arrays of token ids, and of the numbers of documents, are called in files that say no more
of themselves.
"""
HASHED = 2**24  # bytes that are hashed at a time


def stored_dtype(name: str, kind: Any, numpy_kind: Any) -> torch.dtype:
    """Torch's dtype for the numbers of a kind (in numpy `numpy_kind`) that `name` holds; BadInput
    where no states are of it.
    """
    try:
        dtype = torch.from_numpy(np.empty(0, numpy_kind)).dtype
    except TypeError:
        dtype = torch.bool
    if dtype not in DTYPES.values():
        raise BadInput(f"{name} holds {kind}, which no states are.")
    return dtype


class Rows(Protocol):
    """`count` rows of `width` numbers in their own dtype, read by their numbers; token ids are rows
    of width 1.
    """

    @property
    def count(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def dtype(self) -> torch.dtype: ...
    def read(self, first: int, last: int) -> Shaped[Tensor, "rows width"]:
        """The rows first ... last − 1; a tensor that the caller may keep, and must not change."""


class TensorRows:
    """Rows in memory; reading gives a view.

    >>> TensorRows(torch.eye(3)).read(1, 3).tolist()
    [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """

    def __init__(self, rows: Shaped[Tensor, "n width"]) -> None:
        self.rows, (self.count, self.width), self.dtype = rows, rows.shape, rows.dtype

    def read(self, first: int, last: int) -> Tensor:
        return self.rows[first:last]


class FlatRows:
    """Rows that lie one after the other in a file, from a byte on; only those asked for are read.

    `swapped` means the byte order that is not this machine's. Raises BadInput where the file is
    shorter than its rows.
    """

    def __init__(
        self,
        place: Location,
        offset: int,
        count: int,
        width: int,
        dtype: torch.dtype,
        *,
        swapped: bool = False,
    ) -> None:
        self.place = place
        self.offset = offset
        self.count = count
        self.width = width
        self.dtype = dtype
        self.swapped = swapped
        self._bytes = width * dtype.itemsize
        if place.size < (needed := offset + count * self._bytes):
            raise BadInput(f"{place.path} is truncated: it has {place.size:,} bytes of {needed:,}.")

    def read(self, first: int, last: int) -> Tensor:
        start = self.offset + first * self._bytes
        size = (last - first) * self._bytes
        data = bytearray(size)
        if self.place.remote:
            content = self.place.bytes(start, start + size)
            done = len(content)
            data[:done] = content
        else:  # stores may have more files than may be open
            with open(self.place.path, "rb") as file:
                file.seek(start)
                done = file.readinto(data)
        if done < size:
            raise BadInput(f"{self.place.path} is truncated: it ends at byte {start + done:,}.")
        rows = (
            torch.frombuffer(data, dtype=self.dtype) if size else torch.empty(0, dtype=self.dtype)
        )
        rows = rows.reshape(last - first, self.width)
        return torch.from_numpy(rows.numpy().byteswap()) if self.swapped else rows


class JoinedRows:
    """Rows of several parts, one after the other.

    >>> JoinedRows([TensorRows(torch.zeros(2, 1)), TensorRows(torch.ones(2, 1))]).read(1, 3).tolist()
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
        at = bisect_right(self.starts, first) - 1
        while first < last:
            end = min(last, self.starts[at + 1])
            if end > first:
                pieces.append(self.parts[at].read(first - self.starts[at], end - self.starts[at]))
            first = end
            at = at + 1
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)


Array = tuple[Sequence[int], Callable[[int, int], Rows]]
"""The shape of a stored array, and what gives its rows for a number of rows and a width."""


def of_shape(name: str, what: str, shape: Sequence[int]) -> tuple[int, int, int | None]:
    """Rows, width and window of an array of this shape: [n, d], or [windows, T, d]; BadInput for
    others.

    >>> of_shape("a.npy", "it", (5, 8, 3)), of_shape("a.npy", "it", (40, 3))
    ((40, 3, 8), (40, 3, None))
    """
    if len(shape) == 2:
        return shape[0], shape[1], None
    if len(shape) == 3:
        return shape[0] * shape[1], shape[2], shape[1] or None
    wanted = "states have the shape [vectors, width] or [windows, tokens, width]"
    raise BadInput(f"{name}: {wanted}, and {what} has {list(shape)}.")


@dataclass(frozen=True)
class Vectors:
    """The vectors of a store: row k of every site is of token k.

    With `lengths` (of width 1) windows differ in length, and row k of the site `sentence` is of
    window k.

    Raises BadInput where there are no vectors, or not the same number at every site.
    """

    name: str  # in sentences
    sites: Mapping[str, Rows]  # in order
    ids: Rows | None = None  # token ids, of width 1
    documents: Rows | None = None  # the number of each token's document
    window: int | None = None  # rows of a window, where the store is made of whole windows
    vocabulary: int | None = None  # one more than the largest token id, where the store says it
    model: str | None = None  # what the store says of the model that made it
    notes: tuple[str, ...] = ()  # what a reader of its numbers must know
    lengths: Rows | None = None

    def __post_init__(self) -> None:
        if not self.sites:
            raise BadInput(f"{self.name} holds no vectors.")
        counts = {
            site: rows.count
            for site, rows in self.sites.items()
            if self.lengths is None or site != SENTENCE
        }
        if len(set(counts.values())) > 1:
            listed = ", ".join(f"{site} {count:,}" for site, count in list(counts.items())[:4])
            raise BadInput(
                f"{self.name} holds different numbers of vectors at different sites: {listed}."
            )
        for what, rows in (("token ids", self.ids), ("documents", self.documents)):
            if rows is not None and rows.count != self.count:
                raise BadInput(
                    f"{self.name} holds {self.count:,} vectors but {rows.count:,} {what}."
                )
        for site, rows in self.sites.items():
            if not rows.dtype.is_floating_point:
                raise BadInput(
                    f"{self.name} holds whole numbers at {site}, and states are floating point "
                    "numbers."
                )
            if rows.count == 0 or rows.width == 0:
                raise BadInput(
                    f"{self.name} holds no numbers at {site}: its shape is {rows.count} x "
                    f"{rows.width}."
                )

    @property
    def count(self) -> int:
        return (
            self.ids
            if self.lengths is not None and self.ids is not None
            else next(iter(self.sites.values()))
        ).count

    def identity(self, used: int) -> str:
        """A hash of names, shapes, dtypes and of the first `used` rows of each site, of their
        tokens and documents.
        """
        digest = hashlib.sha256()
        beside = {"token ids": self.ids, "documents": self.documents, "lengths": self.lengths}
        for name, rows in [*self.sites.items(), *beside.items()]:
            if rows is None:
                continue
            digest.update(f"{name}/{rows.count}/{rows.width}/{rows.dtype}/{self.window}".encode())
            step = max(1, HASHED // (rows.width * rows.dtype.itemsize))
            for first in range(0, last := min(used, rows.count), step):
                digest.update(
                    rows.read(first, min(first + step, last))
                    .contiguous()
                    .view(torch.uint8)
                    .numpy()
                    .data
                )
        return digest.hexdigest()

    @classmethod
    def of_arrays(
        cls, name: str, arrays: Mapping[str, Array], where: str | None = None
    ) -> "Vectors":
        """The vectors of arrays by site; token ids and documents are known by their names
        (`TOKENS`, `DOCUMENTS`). Raises BadInput where a shape is none of states, or windows differ
        in length; `where` begins the sentence.
        """
        sites = dict[str, Rows]()
        beside = dict[str, Rows]()
        windows = set[int | None]()
        for site, (shape, rows) in arrays.items():
            if not all(type(size) is int and size >= 0 for size in shape):
                raise BadInput(
                    f"{where or name}: '{site}' has the shape {list(shape)}, which no array has."
                )
            if site in TOKENS + DOCUMENTS:
                beside["ids" if site in TOKENS else "documents"] = rows(math.prod(shape), 1)
                continue
            count, width, window = of_shape(where or name, f"'{site}'", shape)
            sites[site] = rows(count, width)
            windows.add(window)
        if len(windows) > 1:
            raise BadInput(
                f"{where or name} has windows at some sites and none, or others, at other sites."
            )
        return cls(
            name,
            sites,
            beside.get("ids"),
            beside.get("documents"),
            window=next(iter(windows), None),
        )

    @classmethod
    def joined(cls, name: str, parts: "Sequence[Vectors]") -> "Vectors":
        """Several stores of the same sites, one after the other."""
        if not parts:
            raise BadInput(f"The folder {name} holds no states.")
        first = parts[0]
        layouts = [
            ({site: (r.width, r.dtype) for site, r in part.sites.items()}, part.window)
            for part in parts
        ]
        for part, layout in zip(parts, layouts, strict=True):
            if layout != layouts[0]:
                raise BadInput(
                    f"{part.name} does not go with {first.name}: its sites, widths or dtypes are "
                    "others."
                )
        if len(parts) == 1:
            return first
        ids = [part.ids for part in parts if part.ids is not None]
        if len(ids) not in (0, len(parts)):
            raise BadInput(f"Some parts of {name} have token ids and some have none.")
        documents = [part.documents for part in parts if part.documents is not None]
        sizes = [part.vocabulary for part in parts if part.vocabulary is not None]
        return cls(
            name,
            {site: JoinedRows([part.sites[site] for part in parts]) for site in first.sites},
            ids=JoinedRows(ids) if ids else None,
            documents=JoinedRows(documents) if len(documents) == len(parts) else None,
            window=first.window,
            vocabulary=max(sizes) if len(sizes) == len(parts) else None,
            model=first.model,
            notes=first.notes,
        )


class StateFormat(ABC):
    """A way in which people store states. Subclass it in a file of headscan/states/formats, or of a
    plug-in.
    """

    title: ClassVar[str]
    sentence: ClassVar[str]
    # libraries whose files the tests read; "" where only the documentation was followed
    tried: ClassVar[str]
    first: ClassVar[int] = 0  # asked before the formats with less of it
    endings: ClassVar[tuple[str, ...]] = ()  # by which files of it are known

    def recognises(self, place: Location) -> bool:
        """Whether a place is of this format, from names alone as far as that can be."""
        return place.suffix in self.endings

    @abstractmethod
    def read(self, place: Location, field: str | None) -> Vectors:
        """The vectors of the place; `field` names the column, where the user says one. Raises
        BadInput where it is truncated, of another format, or its shapes are none of states.
        """


FORMATS: Registry[type[StateFormat]] = Registry("format", "headscan.states.formats")
"""All formats of stored states."""


def read_states(path: str, field: str | None = None) -> Vectors | None:
    """The stored states at a path or URL, or one site of them at `PATH#SITE`; None where no format
    knows the place. Raises BadInput where there is nothing at a URL, or what is there cannot be
    read.
    """
    whole, _, site = path.partition("#")
    place = Location(whole)
    if place.remote and not place.exists:
        raise BadInput(f"There is nothing at {whole}.")
    if not place.remote and place.exists and not (place.is_folder or os.path.isfile(whole)):
        raise BadInput(f"{whole} is no file.")
    formats = sorted(FORMATS.values(), key=lambda kind: -kind.first)
    known: Any = next((kind for kind in formats if kind().recognises(place)), None)
    if known is None:
        if place.remote:
            raise BadInput(f"{whole} is of no format of states; there are: {', '.join(FORMATS)}.")
        return None
    vectors: Vectors = known().read(place, field)
    if not site:
        return vectors
    if site not in vectors.sites:
        raise BadInput(f"{whole} has no site '{site}'; it has: {', '.join(vectors.sites)}.")
    return replace(vectors, sites={site: vectors.sites[site]})
