"""What a format finds in a store: rows by site, and the tokens and documents that they are of."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from headscan.run import BadInput
from headscan.states.rows import JoinedRows, Rows

__all__ = ["DOCUMENTS", "TOKENS", "Vectors", "of_shape"]

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
        """Vectors of each site."""
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
