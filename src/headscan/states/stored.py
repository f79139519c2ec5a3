"""Stored states as a source: files, arrays in memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headscan.run import BadInput, Json, ModelRecord, TextRecord
from headscan.states.source import Each, VectorSource
from headscan.states.vectors import DOCUMENTS, DTYPES, TOKENS, Rows, TensorRows, Vectors, of_shape
from headscan.text import Batch, display

Ids = NDArray[np.int64]


class StoredSource(VectorSource):
    """The vectors of a store, cut into windows: its own, or `context` of them.

    Vectors that fill no window come in one shorter window at the end, but where `max_tokens` ends the reading.

    >>> from headscan.states.vectors import Vectors
    >>> from headscan.states.vectors import TensorRows
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
        return self.vectors.sites[site].width

    def batches(
        self, *, start: int = 0, process: int = 0, processes: int = 1, expected: Json = None
    ) -> Iterator[Batch]:
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
        windows, length = batch.ids.shape
        first = int(batch.indices[0]) * self.context
        for site in sites:
            rows = self.vectors.sites[site].read(first, first + windows * length)
            each(site, rows.reshape(windows, length, -1))

    def passed(self) -> None:
        """Take it as read, by others."""
        self._read = self.tokens or 0

    def identity(self) -> str:
        return self.vectors.identity()

    def record(self) -> ModelRecord:
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
        return TextRecord(
            source=self.where or self.name, tokens=self._read, windows=-(-self._read // self.context), dropped=0
        )

    def words(self, ids: Sequence[int]) -> list[str]:
        if self.tokenizer is None:
            return [f"<id {token}>" for token in ids]
        return display(self.tokenizer, ids)


# ---- Live objects as stored states: arrays of numpy and torch, whatever speaks DLPack, and dicts of them.


def tensor_of(given: Any, what: str) -> Tensor:
    """The same numbers as a tensor of the CPU, without a copy where that can be.

    Raises:
        BadInput: it is no array, or one of no numbers.

    >>> tensor_of([[1.0, 2.0]], "it").shape
    torch.Size([1, 2])
    """
    if isinstance(given, Tensor):
        return _numbers(given.detach().cpu(), what)
    try:
        if isinstance(given, np.ndarray):
            found = torch.from_numpy(np.require(given, requirements=["C", "W"]))
        elif hasattr(given, "__dlpack__"):
            found = torch.utils.dlpack.from_dlpack(given).cpu()
        else:
            found = torch.as_tensor(np.asarray(given))
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        raise BadInput(
            f"{what[0].upper()}{what[1:]} is no array of numbers: {' '.join(str(error).split())[:120]}."
        ) from error
    return _numbers(found, what)


def _numbers(found: Tensor, what: str) -> Tensor:
    if found.dtype not in DTYPES.values():
        raise BadInput(
            f"{what[0].upper()}{what[1:]} holds {str(found.dtype).removeprefix('torch.')}, which no states are."
        )
    return found


def of_object(given: Any, name: str = "array") -> Vectors:
    """The vectors of an array [n, d] or [windows, T, d], or of a dict of such by site.

    In a dict `token_ids` and `documents` [n] or [windows, T] say what the vectors are of.

    >>> of_object(np.ones((6, 3), dtype=np.float32)).count
    6
    """
    if not isinstance(given, Mapping):
        given = {"vectors": given}
    sites, windows, extra = dict[str, TensorRows](), set[int | None](), dict[str, TensorRows]()
    for site, value in given.items():
        rows = tensor_of(value, f"{name}'s {site}" if len(given) > 1 else f"the {name}")
        if site in TOKENS + DOCUMENTS:
            extra[TOKENS[0] if site in TOKENS else DOCUMENTS[0]] = TensorRows(rows.reshape(-1, 1))
            continue
        count, width, window = of_shape(f"The {name}", f"'{site}'", rows.shape)
        sites[str(site)] = TensorRows(rows.reshape(count, width))
        windows.add(window)
    if len(windows) > 1:
        raise BadInput(f"The {name} has windows at some sites and none, or others, at other sites.")
    return Vectors(
        name, sites, ids=extra.get(TOKENS[0]), documents=extra.get(DOCUMENTS[0]), window=next(iter(windows), None)
    )


# ---- Vectors that come once, batch by batch, from the user's own program.


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
        for site in sites:
            each(site, self._held[site].reshape(*batch.ids.shape, -1))

    def identity(self) -> str:
        return "an iterator"

    def record(self) -> ModelRecord:
        return ModelRecord(
            name=self.name, model_class="stored states", dtype=str(self._dtype).removeprefix("torch."), device="cpu",
            depth=len(self.sites), width=self._widths[self.sites[0]], context=self.context,
            notes=[f"Batches of the caller's program, in windows of {self.context} vectors."],
        )  # fmt: skip

    def text(self) -> TextRecord:
        return TextRecord(source=self.name, tokens=self._read, windows=self._windows, dropped=0)

    def words(self, ids: Sequence[int]) -> list[str]:
        return [f"<id {token}>" for token in ids]
