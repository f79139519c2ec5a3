"""Vectors that come once, batch by batch, from the user's own program."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headscan.run import BadInput, Json, ModelRecord, TextRecord
from headscan.states.objects import tensor_of
from headscan.states.source import Each, VectorSource
from headscan.states.vectors import DOCUMENTS, TOKENS, of_shape
from headscan.text import Batch

__all__ = ["StreamSource"]


class StreamSource(VectorSource):
    """An iterator of batches: arrays [n, d] or [windows, T, d], or dicts of such by site (also `token_ids`, `documents`).

    It is read once, in the order in which it comes, and cut anew into windows of `context` vectors; so one process reads
    it, and it cannot be resumed. Memory is that of one of its batches and one of ours.

    >>> source = StreamSource(iter([torch.zeros(5, 3), torch.zeros(6, 3)]), context=4, batch=2)
    >>> [batch.ids.shape for batch in source.batches()]
    [(2, 4), (1, 3)]
    """

    def __init__(self, batches: Iterable[Any], *, context: int = 128, batch: int | None = None) -> None:
        self.name, self.tokens, self.device, self.vocabulary = "batches", None, torch.device("cpu"), 0
        self._given = iter(batches)
        try:
            head = self._parts(next(self._given))
        except StopIteration:
            raise BadInput("The iterator of batches gave none.") from None
        first, window = head
        self._waiting = deque([first])
        self.sites = tuple(name for name in first if name not in (TOKENS[0], DOCUMENTS[0]))
        self.window, self.has_documents = window, DOCUMENTS[0] in first
        self.context = window or context
        self.batch, self._held = batch or max(1, 2048 // self.context), dict[str, Tensor]()
        self._windows = self._read = 0
        self._widths = {site: first[site].shape[1] for site in self.sites}
        self._dtype = first[self.sites[0]].dtype
        self._consumed = False

    def _parts(self, given: Any) -> tuple[dict[str, Tensor], int | None]:
        """A batch as rows [n, d] by site, and the window that they came in."""
        found, window = dict[str, Tensor](), None
        for site, value in (given if isinstance(given, Mapping) else {"vectors": given}).items():
            rows = tensor_of(value, f"the batch's {site}")
            name = TOKENS[0] if site in TOKENS else DOCUMENTS[0] if site in DOCUMENTS else str(site)
            if name in (TOKENS[0], DOCUMENTS[0]):
                found[name] = rows.reshape(-1, 1)
                continue
            count, width, own = of_shape("A batch", "one", rows.shape)
            found[name], window = rows.reshape(count, width), own
        if len({len(rows) for rows in found.values()}) > 1 or not found:
            raise BadInput("A batch has different numbers of vectors at different sites.")
        return found, window

    def width(self, site: str) -> int:
        """See `VectorSource`."""
        return self._widths[site]

    def _more(self) -> Iterator[dict[str, Tensor]]:
        yield from self._waiting
        self._waiting.clear()
        for given in self._given:
            parts, _ = self._parts(given)
            if {site: rows.shape[1] for site, rows in parts.items() if site in self._widths} != self._widths:
                raise BadInput("A batch has other sites or widths than the first one.")
            yield parts

    def batches(
        self, *, start: int = 0, process: int = 0, processes: int = 1, expected: Json = None
    ) -> Iterator[Batch]:
        """See `VectorSource`."""
        if self._consumed or start:
            raise BadInput("An iterator of batches can be read only once: give an array, a file, or a fresh iterator.")
        if processes > 1:
            raise BadInput("An iterator of batches is read by one process: store the vectors, and name the file.")
        self._consumed = True
        held, room = dict[str, Tensor](), self.batch * self.context
        for parts in self._more():
            held = {site: torch.cat([held[site], rows]) if held else rows for site, rows in parts.items()}
            while len(held[self.sites[0]]) >= room:
                yield self._give({site: rows[:room] for site, rows in held.items()}, self.context)
                held = {site: rows[room:] for site, rows in held.items()}
        left = len(held[self.sites[0]])
        whole = left // self.context * self.context
        if whole:
            yield self._give({site: rows[:whole] for site, rows in held.items()}, self.context)
        if left - whole:
            yield self._give({site: rows[whole:] for site, rows in held.items()}, left - whole)

    def _give(self, held: dict[str, Tensor], length: int) -> Batch:
        self._held, count = held, len(held[self.sites[0]])
        windows = count // length
        indices = np.arange(self._windows, self._windows + windows)
        self._windows, self._read = self._windows + windows, self._read + count
        shape = (windows, length)
        documents = held[DOCUMENTS[0]].long().numpy() if DOCUMENTS[0] in held else np.zeros(count, dtype=np.int64)
        number = int(indices[0]) // self.batch if length == self.context else -(-int(indices[0]) // self.batch)
        return Batch(number, indices, np.full(shape, -1), documents.reshape(shape))

    def visit(self, batch: Batch, sites: Sequence[str], each: Each) -> None:
        """See `VectorSource`: the batch that was given last, no other."""
        for site in sites:
            each(site, self._held[site].reshape(*batch.ids.shape, -1))

    def identity(self) -> str:
        """Nothing can be said of what has not come yet."""
        return "an iterator"

    def record(self) -> ModelRecord:
        """Shapes and dtype."""
        return ModelRecord(
            name=self.name, model_class="stored states", dtype=str(self._dtype).removeprefix("torch."), device="cpu",
            depth=len(self.sites), width=self._widths[self.sites[0]], context=self.context,
            notes=[f"Batches of the caller's program, in windows of {self.context} vectors."],
        )  # fmt: skip

    def text(self) -> TextRecord:
        """How many have come."""
        return TextRecord(source=self.name, tokens=self._read, windows=self._windows, dropped=0)

    def words(self, ids: Sequence[int]) -> list[str]:
        """There are no ids."""
        return [f"<id {token}>" for token in ids]
