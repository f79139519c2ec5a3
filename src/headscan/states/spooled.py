"""Vectors that come once, written down so that they can be counted and read again."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headscan.run import BadInput
from headscan.states.location import Location
from headscan.states.opening import SourceLike, stored_source
from headscan.states.rows import FlatRows
from headscan.states.source import VectorSource
from headscan.states.stored import StoredSource
from headscan.states.stream import StreamSource
from headscan.states.vectors import Vectors

__all__ = ["counted_source"]


class _SpooledRows(FlatRows):
    """Rows in a temporary folder, which goes when nobody holds any of them."""

    def __init__(self, folder: tempfile.TemporaryDirectory[str], name: str, *shape: Any) -> None:
        self.folder = folder
        super().__init__(Location(str(Path(folder.name) / name)), 0, *shape)


def counted_source(given: SourceLike, **options: Any) -> VectorSource | None:
    """As `stored_source`; an iterator of batches is read to its end, into a temporary file that goes with the source.

    >>> counted_source(iter([torch.zeros(5, 3), torch.ones(6, 3)])).tokens
    11
    """
    found = stored_source(given, **options)
    return _spooled(found, **options) if isinstance(found, StreamSource) else found


def _spooled(
    source: StreamSource, *, context: int = 128, batch: int | None = None, max_tokens: int | None = None, **_: Any
) -> StoredSource:
    folder = tempfile.TemporaryDirectory(prefix="headscan-")
    dtypes, count = dict[str, torch.dtype](), 0
    names = {site: f"{number}" for number, site in enumerate(source.sites)}
    try:
        for one in source.batches():
            source.visit(one, source.sites, lambda site, rows: _append(folder, names[site], rows, site, dtypes))
            _append(folder, "documents", torch.from_numpy(one.documents).contiguous(), "documents", dtypes)
            count += one.ids.size
    except OSError as error:
        raise BadInput(f"The batches cannot be written to {tempfile.gettempdir()}: {error}.") from error
    sites = {site: _SpooledRows(folder, name, count, source.width(site), dtypes[site]) for site, name in names.items()}
    documents = _SpooledRows(folder, "documents", count, 1, torch.int64)
    vectors = Vectors(source.name, sites, documents=documents if source.has_documents else None, window=source.window)
    return StoredSource(vectors, context=context, batch=batch, max_tokens=max_tokens)


def _append(
    folder: tempfile.TemporaryDirectory[str], name: str, rows: Tensor, site: str, dtypes: dict[str, torch.dtype]
) -> None:
    if dtypes.setdefault(site, rows.dtype) != rows.dtype:
        raise BadInput(f"The batches hold {dtypes[site]} first and then {rows.dtype} at '{site}'.")
    with open(Path(folder.name) / name, "ab") as file:
        file.write(rows.contiguous().view(torch.uint8).numpy().tobytes())
