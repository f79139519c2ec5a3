"""Stored states as a source: files, and arrays in memory."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from typing_extensions import TypeAliasType

from headscan.model.available import specimens
from headscan.model.finding import model_folder
from headscan.model.gguf import is_gguf
from headscan.model.lens import Lens, ModelLike
from headscan.model.source import check_adapter
from headscan.run import BadInput, Json, ModelRecord, TextRecord
from headscan.states.source import Each, VectorSource
from headscan.states.vectors import DTYPES, Array, Rows, TensorRows, Vectors, read_states
from headscan.text import Batch, Window, batches, display
from headscan.text.source import window_length

LARGEST = 2**26  # token ids are below this: the largest vocabularies have a quarter of a million


class StoredSource(VectorSource):
    """The vectors of a store, cut into windows: its own, or `context` of them, or texts of lengths
    of their own (`alone`).

    Vectors that fill no window come in one shorter window at the end, but where `max_tokens` ends
    the reading. Any batch can be visited, also again.

    >>> from headscan.states.vectors import TensorRows, Vectors
    >>> source = StoredSource(Vectors("x", {"vectors": TensorRows(torch.zeros(10, 3))}), context=4, batch=2)
    >>> [(batch.indices.tolist(), batch.ids.shape) for batch in source.batches()]
    [([0, 1], (2, 4)), ([2], (1, 2))]
    """

    tokens: int

    def __init__(
        self,
        vectors: Vectors,
        *,
        context: int | None = None,
        batch: int | None = None,
        max_tokens: int | None = None,
        tokenizer: Any = None,
        where: str | None = None,
    ) -> None:
        self.vectors = vectors
        self.name = vectors.name
        self.where = where
        self.sites = tuple(vectors.sites)
        self.device = torch.device("cpu")
        self.tokenizer = tokenizer
        self.context = vectors.window or min(window_length(context), vectors.count)
        self.whole, self.rest = divmod(vectors.count, self.context)
        self.alone = vectors.lengths is not None
        if vectors.lengths is not None:
            lengths = vectors.lengths.read(0, vectors.lengths.count).long().flatten()
            if lengths.min() < 1 or lengths.max() > self.context or lengths.sum() != vectors.count:
                raise BadInput(
                    f"{self.name} holds lengths of texts that are not those of its "
                    f"{vectors.count:,} vectors."
                )
            self.whole = len(lengths)
            self.rest = 0
            self.starts = np.concatenate([[0], np.cumsum(lengths.numpy())])
        if max_tokens is not None and max_tokens < vectors.count:
            self.whole = max_tokens // self.context
            self.rest = 0
            if self.alone:
                self.whole = int(np.searchsorted(self.starts, max_tokens, side="right")) - 1
            if not self.whole:
                raise BadInput(
                    f"--max-tokens must be at least one window of {self.context} vectors, not "
                    f"{max_tokens}."
                )
        self.batch = batch or max(1, 2048 // self.context)
        self.tokens = self.read(self.whole) + self.rest
        self._read = 0
        self.vocabulary = (
            0 if vectors.ids is None else vectors.vocabulary or self._largest(vectors.ids) + 1
        )
        if self.vocabulary > LARGEST:
            raise BadInput(
                f"{self.name} holds the token id {self.vocabulary - 1:,}, which is of no "
                "vocabulary."
            )

    def _largest(self, ids: Rows) -> int:
        step = 1 << 20
        return max(
            int(ids.read(k, min(k + step, self.tokens)).max()) for k in range(0, self.tokens, step)
        )

    def width(self, site: str) -> int:
        return self.vectors.sites[site].width

    def batches(
        self, *, start: int = 0, process: int = 0, processes: int = 1, expected: Json = None
    ) -> Iterator[Batch]:
        windows = self.whole + (1 if self.rest else 0)
        first = start
        if self.alone:
            yield from batches(
                map(self._text, range(start, windows)),
                self.batch,
                process=process,
                processes=processes,
            )
            self._read = self.tokens
            return
        while first < windows:
            number = first // self.batch if first < self.whole else -(-self.whole // self.batch)
            last = min((number + 1) * self.batch, self.whole) if first < self.whole else windows
            if number % processes == process:
                yield self._batch(number, first, last)
            first = last
            self._read = min(last * self.context, self.tokens)

    def read(self, windows: int) -> int:
        return int(self.starts[windows]) if self.alone else super().read(windows)

    def _text(self, number: int) -> Window:
        """A text of its own length."""
        self._read = self.read(number + 1)
        batch = self._batch(number, number, number + 1)
        return Window(number, batch.ids[0], batch.documents[0])

    def _batch(self, number: int, first: int, last: int) -> Batch:
        begin = self.read(first)
        end = min(self.read(last), self.tokens)
        shape = (last - first, (end - begin) // (last - first))

        def numbers(rows: Rows | None, absent: int) -> NDArray[np.int64]:
            flat = (
                torch.full((end - begin,), absent)
                if rows is None
                else rows.read(begin, end).reshape(-1)
            )
            if flat.is_floating_point() and not bool(
                (flat == flat.floor()).logical_and(flat.abs() < LARGEST).all()
            ):
                raise BadInput(
                    f"{self.name} holds token ids or documents that are no whole numbers."
                )
            return flat.to(torch.int64).numpy().reshape(shape)

        ids = numbers(self.vectors.ids, -1)
        if self.vocabulary and (ids.min() < 0 or ids.max() >= self.vocabulary):
            wrong = ids.min() if ids.min() < 0 else ids.max()
            raise BadInput(f"{self.name} holds the token id {wrong}, of none of its.")
        documents = numbers(self.vectors.documents, 0)
        if documents.min() < 0:
            raise BadInput(
                f"{self.name} holds a document with the number {documents.min()}: documents are "
                "counted from 0."
            )
        return Batch(number, np.arange(first, last), ids, documents)

    def visit(self, batch: Batch, sites: Sequence[str], each: Each) -> None:
        windows, length = batch.ids.shape
        number = int(batch.indices[0])
        for site in sites:
            pooled = self.pooled(site)
            first, many = (number, windows) if pooled else (self.read(number), windows * length)
            rows = self.vectors.sites[site].read(first, first + many)
            each(site, rows.reshape(windows, 1 if pooled else length, -1))

    def passed(self) -> None:
        """Take it as read, by others."""
        self._read = self.tokens

    def identity(self) -> str:
        return self.vectors.identity(self.tokens)

    def record(self) -> ModelRecord:
        first = self.vectors.sites[self.sites[0]]
        kind = (
            f"of {self.whole:,} texts, each read by itself"
            if self.alone
            else f"in windows of {self.context} vectors"
        )
        notes = [*self.vectors.notes, f"Stored states, {kind}."]
        if self.vectors.model:
            notes.append(f"Made by {self.vectors.model}.")
        if self.rest:
            notes.append(
                f"The last {self.rest} vectors fill no window: they are in the numbers, not in "
                "their intervals."
            )
        return ModelRecord(
            name=self.name,
            source=self.where,
            model_class="stored states",
            dtype=str(first.dtype).removeprefix("torch."),
            device="cpu",
            depth=len(self.sites),
            width=first.width,
            vocabulary=self.vocabulary or None,
            context=self.context,
            notes=notes,
        )

    def text(self) -> TextRecord:
        windows = (
            int(np.searchsorted(self.starts, self._read))
            if self.alone
            else -(-self._read // self.context)
        )
        source = self.where or self.name
        return TextRecord(
            source=source,
            tokens=self._read,
            windows=windows,
            dropped=0,
            alone=self.alone,
            context=self.context,
        )

    def words(self, ids: Sequence[int]) -> list[str]:
        return display(self.tokenizer, ids)


def tensor_of(given: Any, what: str) -> Tensor:
    """The same numbers as a tensor of the CPU, without a copy where that can be; BadInput where
    `what` is no numbers.

    >>> tensor_of([[1.0, 2.0]], "it").shape
    torch.Size([1, 2])
    """
    beginning = what[0].upper() + what[1:]
    try:
        if isinstance(given, Tensor):
            tensor = given.detach().cpu()
        elif isinstance(given, np.ndarray):
            tensor = torch.from_numpy(np.require(given, requirements=["C", "W"]))
        elif hasattr(given, "__dlpack__"):
            tensor = torch.utils.dlpack.from_dlpack(given).cpu()
        else:
            tensor = torch.as_tensor(np.asarray(given))
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        raise BadInput(
            f"{beginning} is no array of numbers: {' '.join(str(error).split())[:120]}."
        ) from error
    if tensor.dtype not in DTYPES.values():
        raise BadInput(
            f"{beginning} holds {str(tensor.dtype).removeprefix('torch.')}, which no states are."
        )
    return tensor


def tensor_array(tensor: Tensor) -> Array:
    """A tensor in memory as an array of a store."""
    return tensor.shape, lambda count, width: TensorRows(tensor.reshape(count, width))


def of_object(given: Any, name: str = "array") -> Vectors:
    """The vectors of an array [n, d] or [windows, T, d] (numpy, torch, DLPack), or of a dict of
    such by site.

    In a dict `token_ids` and `documents` [n] or [windows, T] say what the vectors are of.

    >>> of_object(np.ones((6, 3), dtype=np.float32)).count
    6
    """
    items = given if isinstance(given, Mapping) else {"vectors": given}
    what = "the {0}" if len(items) == 1 else "{0}'s {1}"
    arrays = {
        str(site): tensor_array(tensor_of(value, what.format(name, site)))
        for site, value in items.items()
    }
    return Vectors.of_arrays(name, arrays, f"The {name}")


# ---- From what a user gives to a source: a path or URL, an array, a dict.

SourceLike = TypeAliasType("SourceLike", ModelLike | VectorSource | Any)
"""A model, or stored states: a path or URL, an array (numpy, torch, DLPack), a dict of arrays by
site.
"""
SourcesLike = TypeAliasType("SourcesLike", SourceLike | Sequence[SourceLike])


def given_sources(given: SourcesLike) -> list[SourceLike]:
    """Several sources, one by one: those of a list or tuple whose items are no numbers.

    >>> len(given_sources(["gpt2", "a.npy"])), len(given_sources([[1.0, 2.0], [3.0, 4.0]])), len(given_sources("gpt2"))
    (2, 1, 1)
    """
    if not isinstance(given, list | tuple):
        return [given]
    return (
        list(given)
        if not given or not isinstance(given[0], int | float | list | tuple)
        else [given]
    )


def stored_source(
    given: SourceLike,
    *,
    context: int | None = None,
    batch: int | None = None,
    max_tokens: int | None = None,
    field: str | None = None,
    tokenizer: Any = None,
) -> VectorSource | None:
    """Stored states as a source; None where what was given names a model, or is one.

    `context` (None: 128) counts where the store has no windows, whole windows of `max_tokens`
    vectors are read, `field` is the column of a table. Raises BadInput where they cannot be read,
    or are no states.

    >>> stored_source("gpt-vanilla") is None, stored_source(np.zeros((4, 2))).tokens
    (True, 4)
    """
    where = None
    if isinstance(given, VectorSource):
        return given
    if isinstance(given, Lens | nn.Module):
        return None
    if isinstance(given, str | os.PathLike):
        where = os.fspath(given)
        # "text" is what --field is where nobody said
        vectors = (
            None if is_model(where) else read_states(where, None if field == "text" else field)
        )
        if vectors is None:
            return None
    elif isinstance(given, np.ndarray | Tensor | Mapping | list | tuple) or hasattr(
        given, "__dlpack__"
    ):
        vectors = of_object(given)
    else:
        raise BadInput(
            "A source is a model, a path or URL of stored states, an array, or a dict of arrays "
            f"by site, not a {type(given).__name__}."
        )
    return StoredSource(
        vectors,
        context=context,
        batch=batch,
        max_tokens=max_tokens,
        tokenizer=tokenizer,
        where=where,
    )


def is_model(name: str) -> bool:
    """Whether a name is a model's for certain: a specimen, a .gguf file, a folder whose config.json
    describes one.
    """
    if name in specimens() or "://" in name:
        return name in specimens()
    path = Path(name).expanduser()
    if not path.exists():
        if path.suffix in (
            ".npy",
            ".npz",
            ".parquet",
            ".arrow",
            ".safetensors",
        ):  # no model has such a name
            raise BadInput(f"There is no file {name}.")
        return "#" not in name
    if path.is_file():
        return is_gguf(path)
    if not (config := model_folder(path) / "config.json").is_file():
        check_adapter(path)
    return config.is_file() and "model_type" in config.read_text("utf-8", errors="replace")
