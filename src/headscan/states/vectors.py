"""The vectors of a store: rows by site, and the tokens and documents that they are of."""

import hashlib
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch

from headscan.model.sentence import SENTENCE
from headscan.run import BadInput, Registry
from headscan.states.location import Location, site_of_hook
from headscan.states.precision import PACKINGS, SCALES, scaled, unpacked
from headscan.states.rows import EIGHT_BITS, Array, FloatRows, JoinedRows, Rows
from headscan.states.value_columns import ValueColumn, joined_columns
from headscan.text.tokens import NO_FRAME, Frame

TOKENS = ("token_ids", "input_ids", "tokens", "token_id")
DOCUMENTS = ("documents", "document_ids", "document_id", "document")
"""The names of arrays of token ids and of document numbers, in files without a description."""

HASHED_BYTES = 2**24
"""So many bytes are hashed at a time."""


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


def chosen(name: str, sites: Sequence[str], field: str | None, kind: str = "site") -> list[str]:
    """Return the columns or arrays that the user names by `field`; all where it is None.

    A name stands for itself, for the site that is made of it, and for all that is nested in it.
    Raises BadInput, which calls it a `kind`, where there is none.

    >>> chosen("a.pt", ["logits", "hidden_states.0", "hidden_states.1"], "hidden_states")
    ['hidden_states.0', 'hidden_states.1']
    """
    if field is None:
        return list(sites)
    matches = []
    for part in map(str.strip, field.split(",")):
        matching = [
            site
            for site in sites
            if part in (site, site_of_hook(site)) or site.startswith(f"{part}.")
        ]
        if not matching:
            raise BadInput(f"{name} has no {kind} '{part}'; it has: {', '.join(sites) or 'none'}.")
        matches += matching
    return [site for site in sites if site in matches]


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
        frame: the tokens that stood around every window when the model read it.
        columns: the columns beside the vectors, where the store is a table.
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
    frame: Frame = NO_FRAME
    columns: Mapping[str, ValueColumn] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.sites:
            raise BadInput(f"{self.name} holds no vectors.")
        self._check_counts()
        for site, rows in self.sites.items():
            if not rows.dtype.is_floating_point and rows.dtype not in EIGHT_BITS:
                raise BadInput(
                    f"{self.name} holds whole numbers at {site}, and states are floating point "
                    f"numbers: name {site} by --field where they are vectors all the same."
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
        cls,
        name: str,
        arrays: Mapping[str, Array],
        where: str | None = None,
        field: str | None = None,
    ) -> "Vectors":
        """Return the vectors of arrays by site.

        Token ids and documents are recognised by their names (`TOKENS`, `DOCUMENTS`), and so are
        the scales of 8-bit vectors (`SCALES`). `field` names the arrays that are read; then others
        are left aside where they do not go with them. Raises BadInput where states cannot have a
        shape, or windows differ in length; `where` begins the sentence.
        """
        subject = where or name
        beside = {site: array for site, array in arrays.items() if site in TOKENS + DOCUMENTS}
        scales = {site: array for site, array in arrays.items() if site in SCALES}
        sites: dict[str, Rows] = {}
        windows: set[int | None] = set()

        def add(site: str) -> None:
            shape, rows = arrays[site]
            _check_shape(subject, site, shape)
            count, width, window = of_shape(subject, f"'{site}'", shape)
            windows.add(window)
            sites[site] = rows(count, width)

        candidates = [site for site in arrays if site not in beside and site not in scales]
        for site in chosen(subject, candidates, field):
            add(site)
        eight_bits = [site for site, rows in sites.items() if rows.dtype in EIGHT_BITS]
        for site in eight_bits:
            sites[site] = scaled(subject, scales, sites[site])
        if not eight_bits and field is None:
            for site in scales:  # they are no scales where nothing is scaled
                add(site)
        if len(windows) > 1:
            raise BadInput(
                f"{subject} has windows at some sites and none, or others, at other sites."
            )

        count = next(iter(sites.values())).count if sites else 0
        ids = _column(subject, beside, TOKENS, count if field else None)
        documents = _column(subject, beside, DOCUMENTS, count if field else None)
        if field is not None:
            sites = {site: as_numbers(rows) for site, rows in sites.items()}
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
            columns=joined_columns(
                [part.columns for part in parts], [part.count for part in parts]
            ),
        )

    def _layout(self) -> tuple[dict[str, tuple[int, torch.dtype]], int | None]:
        """Return the width and dtype of each site, and the window."""
        return {site: (rows.width, rows.dtype) for site, rows in self.sites.items()}, self.window


def _check_shape(subject: str, site: str, shape: Sequence[int]) -> None:
    """Raise BadInput for a shape that no array has."""
    if not all(type(size) is int and size >= 0 for size in shape):
        raise BadInput(f"{subject}: '{site}' has the shape {list(shape)}, which no array has.")


def _column(
    subject: str, arrays: Mapping[str, Array], names: Sequence[str], count: int | None
) -> Rows | None:
    """Return the token ids or documents among arrays, of width 1; None where there are none.

    With `count` those of another number of vectors are none.
    """
    column = None
    for name, (shape, rows) in arrays.items():
        _check_shape(subject, name, shape)
        size = math.prod(shape)
        if name in names and count in (None, size):
            column = rows(size, 1)
    return column


def as_numbers(rows: Rows) -> Rows:
    """Return rows that the user names as vectors: whole numbers of more than 8 bits, too."""
    if rows.dtype.is_floating_point or rows.dtype in EIGHT_BITS:
        return rows
    return FloatRows(rows)


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
        """Return the vectors at a location; `field` names its columns or arrays, where the user
        does: what stands beside them is then not judged.

        Raises BadInput where it is truncated, of another format, or states cannot have its shapes.
        """


FORMATS: Registry[type[StateFormat]] = Registry("format", "headscan.states.formats")
"""All formats of stored states."""


def read_states(path: str, field: str | None = None) -> Vectors | None:
    """Return the stored states at a path or URL, or one site of them at `PATH#SITE`.

    `PATH#SITE:ubinary` and `PATH#SITE:binary` unpack the bits of a site, and `PATH#:ubinary` those
    of all. `field` names columns or arrays where no site does. Returns None where no format
    recognises the path. Raises BadInput where there is nothing at a URL, or the
    states cannot be read.
    """
    file, _, site = path.partition("#")
    packing = next((packing for packing in PACKINGS if site.endswith(f":{packing}")), None)
    if packing is not None:
        site = site.removesuffix(f":{packing}")
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
    vectors = state_format.read(location, site or field)
    if site and site not in vectors.sites:
        raise BadInput(f"{file} has no site '{site}'; it has: {', '.join(vectors.sites)}.")
    sites = dict(vectors.sites)
    if site:
        sites = {site: vectors.sites[site]}
    if packing is not None:
        sites = {name: unpacked(file, name, rows, packing) for name, rows in sites.items()}
    return replace(vectors, sites=sites)


def _format_of(location: Location) -> StateFormat | None:
    """Return the format that recognises a location."""
    for kind in sorted(FORMATS.values(), key=lambda kind: -kind.first):
        state_format = kind()
        if state_format.recognises(location):
            return state_format
    return None
