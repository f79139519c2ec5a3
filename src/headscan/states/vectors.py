"""The vectors of a store: rows by site, and the tokens and documents that they are of."""

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
"""The dtypes that states may be stored in, by the names that safetensors gives them."""

TOKENS = ("token_ids", "input_ids", "tokens", "token_id")
DOCUMENTS = ("documents", "document_ids", "document_id", "document")
"""The names of arrays of token ids and of document numbers, in files without a description."""

HASHED_BYTES = 2**24
"""So many bytes are hashed at a time."""


def stored_dtype(name: str, kind: Any, numpy_kind: Any) -> torch.dtype:
    """Return torch's dtype for numbers of a kind; BadInput where states cannot be of it.

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
        raise BadInput(f"{name} holds {kind}, which no states are.")
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


class FlatRows:
    """Consecutive rows in a file, from byte `offset` on; only the requested ones are read.

    `swapped`: the byte order is not this machine's. Raises BadInput where the file is shorter than
    its rows.
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
                file.seek(start)
                count = file.readinto(data)
        if count < size:
            raise BadInput(f"{self.location.path} is truncated: it ends at byte {start + count:,}.")
        return data


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


def of_shape(name: str, subject: str, shape: Sequence[int]) -> tuple[int, int, int | None]:
    """Return the rows, width and window of an array of shape [n, d] or [windows, T, d].

    Raises BadInput for other shapes; `name` is the file's, `subject` the array's.

    >>> of_shape("a.npy", "it", (5, 8, 3)), of_shape("a.npy", "it", (40, 3))
    ((40, 3, 8), (40, 3, None))
    """
    if len(shape) == 2:
        count, width = shape
        return count, width, None
    if len(shape) == 3:
        windows, length, width = shape
        return windows * length, width, length or None
    expected = "states have the shape [vectors, width] or [windows, tokens, width]"
    raise BadInput(f"{name}: {expected}, and {subject} has {list(shape)}.")


@dataclass(frozen=True)
class Vectors:
    """The vectors of a store: row k of every site is of token k.

    Raises BadInput where there are no vectors, or not the same number at every site.

    Attributes:
        name: in sentences.
        sites: rows by site, in order.
        ids: token ids, of width 1.
        documents: the number of each token's document, of width 1.
        window: rows of a window, where the store is made of complete windows.
        vocabulary: one more than the largest token id, where the store says it.
        model: the model that made the store, where it says so.
        notes: cautions for readers of its numbers.
        lengths: of width 1, where windows differ in length; then row k of the site `sentence` is of
            window k.
    """

    name: str
    sites: Mapping[str, Rows]
    ids: Rows | None = None
    documents: Rows | None = None
    window: int | None = None
    vocabulary: int | None = None
    model: str | None = None
    notes: tuple[str, ...] = ()
    lengths: Rows | None = None

    def __post_init__(self) -> None:
        if not self.sites:
            raise BadInput(f"{self.name} holds no vectors.")
        self._check_counts()
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

    def _check_counts(self) -> None:
        """Raise BadInput unless sites, token ids and documents are of the same number of tokens."""
        counts = {}
        for site, rows in self.sites.items():
            if self.lengths is None or site != SENTENCE:
                counts[site] = rows.count
        if len(set(counts.values())) > 1:
            listed = ", ".join(f"{site} {count:,}" for site, count in list(counts.items())[:4])
            raise BadInput(
                f"{self.name} holds different numbers of vectors at different sites: {listed}."
            )
        for title, numbers in (("token ids", self.ids), ("documents", self.documents)):
            if numbers is not None and numbers.count != self.count:
                raise BadInput(
                    f"{self.name} holds {self.count:,} vectors but {numbers.count:,} {title}."
                )

    @property
    def count(self) -> int:
        """Return the number of tokens."""
        if self.lengths is not None and self.ids is not None:
            return self.ids.count
        return next(iter(self.sites.values())).count

    def identity(self, used: int) -> str:
        """Return a hash of the first `used` rows of each site, and of their tokens and documents.

        Names, shapes and dtypes enter it, too.
        """
        digest = hashlib.sha256()
        arrays: dict[str, Rows | None] = dict(self.sites)
        arrays |= {"token ids": self.ids, "documents": self.documents, "lengths": self.lengths}
        for name, rows in arrays.items():
            if rows is None:
                continue
            digest.update(f"{name}/{rows.count}/{rows.width}/{rows.dtype}/{self.window}".encode())
            step = max(1, HASHED_BYTES // (rows.width * rows.dtype.itemsize))
            last = min(used, rows.count)
            for first in range(0, last, step):
                piece = rows.read(first, min(first + step, last))
                digest.update(piece.contiguous().view(torch.uint8).numpy().data)
        return digest.hexdigest()

    @classmethod
    def of_arrays(
        cls, name: str, arrays: Mapping[str, Array], where: str | None = None
    ) -> "Vectors":
        """Return the vectors of arrays by site.

        Token ids and documents are recognised by their names (`TOKENS`, `DOCUMENTS`). Raises
        BadInput where states cannot have a shape, or windows differ in length; `where` begins the
        sentence.
        """
        subject = where or name
        sites: dict[str, Rows] = {}
        windows: set[int | None] = set()
        ids = None
        documents = None
        for site, (shape, rows) in arrays.items():
            if not all(type(size) is int and size >= 0 for size in shape):
                raise BadInput(
                    f"{subject}: '{site}' has the shape {list(shape)}, which no array has."
                )
            if site in TOKENS:
                ids = rows(math.prod(shape), 1)
            elif site in DOCUMENTS:
                documents = rows(math.prod(shape), 1)
            else:
                count, width, window = of_shape(subject, f"'{site}'", shape)
                sites[site] = rows(count, width)
                windows.add(window)
        if len(windows) > 1:
            raise BadInput(
                f"{subject} has windows at some sites and none, or others, at other sites."
            )
        return cls(name, sites, ids, documents, window=next(iter(windows), None))

    @classmethod
    def joined(cls, name: str, parts: "Sequence[Vectors]") -> "Vectors":
        """Return several stores of the same sites as one, one after the other."""
        if not parts:
            raise BadInput(f"The folder {name} holds no states.")
        first = parts[0]
        for part in parts:
            if part._layout() != first._layout():
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
        vocabularies = [part.vocabulary for part in parts if part.vocabulary is not None]
        return cls(
            name,
            {site: JoinedRows([part.sites[site] for part in parts]) for site in first.sites},
            ids=JoinedRows(ids) if ids else None,
            documents=JoinedRows(documents) if len(documents) == len(parts) else None,
            window=first.window,
            vocabulary=max(vocabularies) if len(vocabularies) == len(parts) else None,
            model=first.model,
            notes=first.notes,
        )

    def _layout(self) -> tuple[dict[str, tuple[int, torch.dtype]], int | None]:
        """Return the width and dtype of each site, and the window."""
        return {site: (rows.width, rows.dtype) for site, rows in self.sites.items()}, self.window


class StateFormat(ABC):
    """A format of stored states.

    Subclass it in a file of headscan/states/formats, or of a plug-in.

    Attributes:
        title, sentence: its description.
        tried: libraries whose files the tests read; empty where only their documentation was
            followed.
        first: formats with a larger number are tried before others.
        endings: the endings of its files.
    """

    title: ClassVar[str]
    sentence: ClassVar[str]
    tried: ClassVar[str]
    first: ClassVar[int] = 0
    endings: ClassVar[tuple[str, ...]] = ()

    def recognises(self, location: Location) -> bool:
        """Return whether a location is of this format, as far as possible from names alone."""
        return location.suffix in self.endings

    @abstractmethod
    def read(self, location: Location, field: str | None) -> Vectors:
        """Return the vectors at a location; `field` names the column, where the user gives one.

        Raises BadInput where it is truncated, of another format, or states cannot have its shapes.
        """


FORMATS: Registry[type[StateFormat]] = Registry("format", "headscan.states.formats")
"""All formats of stored states."""


def read_states(path: str, field: str | None = None) -> Vectors | None:
    """Return the stored states at a path or URL, or one site of them at `PATH#SITE`.

    Returns None where no format recognises the path. Raises BadInput where there is nothing at a
    URL, or the states cannot be read.
    """
    file, _, site = path.partition("#")
    location = Location(file)
    if location.remote:
        if not location.exists:
            raise BadInput(f"There is nothing at {file}.")
    elif location.exists and not location.is_folder and not os.path.isfile(file):
        raise BadInput(f"{file} is no file.")

    state_format = _format_of(location)
    if state_format is None:
        if location.remote:
            raise BadInput(f"{file} is of no format of states; there are: {', '.join(FORMATS)}.")
        return None
    vectors = state_format.read(location, field)
    if not site:
        return vectors
    if site not in vectors.sites:
        raise BadInput(f"{file} has no site '{site}'; it has: {', '.join(vectors.sites)}.")
    return replace(vectors, sites={site: vectors.sites[site]})


def _format_of(location: Location) -> StateFormat | None:
    """Return the format that recognises a location."""
    for kind in sorted(FORMATS.values(), key=lambda kind: -kind.first):
        state_format = kind()
        if state_format.recognises(location):
            return state_format
    return None
