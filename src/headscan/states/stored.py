"""Stored states as a source: files, arrays in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headscan.run import BadInput, Json, ModelRecord, TextRecord
from headscan.states.rows import Rows
from headscan.states.source import Each, VectorSource
from headscan.states.vectors import Vectors
from headscan.text import Batch, display

__all__ = ["StoredSource"]

Ids = NDArray[np.int64]


class StoredSource(VectorSource):
    """The vectors of a store, cut into windows: its own, or `context` of them.

    Vectors that fill no window come in one shorter window at the end, but where `max_tokens` ends the reading.

    >>> from headscan.states.vectors import Vectors
    >>> from headscan.states.rows import TensorRows
    >>> source = StoredSource(Vectors("x", {"vectors": TensorRows(torch.zeros(10, 3))}), context=4, batch=2)
    >>> [(batch.indices.tolist(), batch.ids.shape) for batch in source.batches()]
    [([0, 1], (2, 4)), ([2], (1, 2))]
    """

    def __init__(
        self, vectors: Vectors, *, context: int = 128, batch: int | None = None, max_tokens: int | None = None,
        tokenizer: Any = None, where: str | None = None,
    ) -> None:  # fmt: skip
        self.vectors, self.name, self.where = vectors, vectors.name, where
        self.sites, self.device, self.tokenizer = tuple(vectors.sites), torch.device("cpu"), tokenizer
        self.context = vectors.window or min(context, vectors.count)
        self.whole, self.rest = divmod(vectors.count, self.context)
        if max_tokens is not None and max_tokens < vectors.count:
            self.whole, self.rest = max_tokens // self.context, 0
            if not self.whole:
                raise BadInput(f"--max-tokens must be at least one window of {self.context} vectors, not {max_tokens}.")
        self.batch = batch or max(1, 2048 // self.context)
        self.tokens = self.whole * self.context + self.rest
        self.vocabulary = 0 if vectors.ids is None else vectors.vocabulary or self._largest(vectors.ids) + 1
        self._read = 0

    def _largest(self, ids: Rows) -> int:
        """The largest token id; the ids are read for it, which are a small part of a store."""
        found, step = 0, 1 << 20
        for first in range(0, self.tokens or 0, step):
            found = max(found, int(ids.read(first, min(first + step, self.tokens or 0)).max()))
        return found

    def width(self, site: str) -> int:
        """See `VectorSource`."""
        return self.vectors.sites[site].width

    def batches(
        self, *, start: int = 0, process: int = 0, processes: int = 1, expected: Json = None
    ) -> Iterator[Batch]:
        """See `VectorSource`."""
        windows = self.whole + (1 if self.rest else 0)
        first = start
        while first < windows:
            number = first // self.batch
            last = min((number + 1) * self.batch, self.whole) if first < self.whole else windows
            number = number if first < self.whole else (self.whole + self.batch - 1) // self.batch
            if number % processes == process:
                yield self._batch(number, first, last)
            first = last
            self._read = min(last * self.context, self.tokens or 0)

    def _batch(self, number: int, first: int, last: int) -> Batch:
        begin, end = first * self.context, min(last * self.context, self.tokens or 0)
        shape = (last - first, (end - begin) // (last - first))
        ids = self._numbers(self.vectors.ids, begin, end, -1).reshape(shape)
        if self.vocabulary and (ids.min() < 0 or ids.max() >= self.vocabulary):
            raise BadInput(
                f"{self.name} holds the token id {ids.min() if ids.min() < 0 else ids.max()}, of none of its."
            )
        documents = self._numbers(self.vectors.documents, begin, end, 0).reshape(shape)
        return Batch(number, np.arange(first, last), ids, documents)

    @staticmethod
    def _numbers(rows: Rows | None, first: int, last: int, absent: int) -> Ids:
        if rows is None:
            return np.full(last - first, absent, dtype=np.int64)
        return rows.read(first, last).reshape(-1).to(torch.int64).numpy()

    def visit(self, batch: Batch, sites: Sequence[str], each: Each) -> None:
        """See `VectorSource`; any batch can be visited, also again."""
        windows, length = batch.ids.shape
        first = int(batch.indices[0]) * self.context
        for site in sites:
            rows = self.vectors.sites[site].read(first, first + windows * length)
            each(site, rows.reshape(windows, length, -1))

    def passed(self) -> None:
        """Take it as read, by others."""
        self._read = self.tokens or 0

    def identity(self) -> str:
        """See `VectorSource`."""
        return self.vectors.identity()

    def record(self) -> ModelRecord:
        """What the store says of itself."""
        first = self.vectors.sites[self.sites[0]]
        notes = [*self.vectors.notes, f"Stored states, in windows of {self.context} vectors."]
        if self.vectors.model:
            notes.append(f"Made by {self.vectors.model}.")
        if self.rest:
            notes.append(
                f"The last {self.rest} vectors fill no window: they are in the numbers, not in their intervals."
            )
        return ModelRecord(
            name=self.name, source=self.where, model_class="stored states", dtype=str(first.dtype).removeprefix("torch."),
            device="cpu", depth=len(self.sites), width=first.width, vocabulary=self.vocabulary or None,
            context=self.context, notes=notes,
        )  # fmt: skip

    def text(self) -> TextRecord:
        """The vectors in place of a text."""
        return TextRecord(
            source=self.where or self.name, tokens=self._read, windows=-(-self._read // self.context), dropped=0
        )

    def words(self, ids: Sequence[int]) -> list[str]:
        """By the tokenizer, where one was given."""
        if self.tokenizer is None:
            return [f"<id {token}>" for token in ids]
        return display(self.tokenizer, ids)
