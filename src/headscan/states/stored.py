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
from headscan.model.sentence import check_encoder
from headscan.model.source import check_adapter
from headscan.run import BadInput, Json, ModelRecord, TextRecord
from headscan.run.files import read_at_most
from headscan.states.rows import DTYPES, EIGHT_BITS, Array, Rows, TensorRows
from headscan.states.source import Each, VectorSource
from headscan.states.vectors import Vectors, read_states
from headscan.text import Batch, Window, batches, display
from headscan.text.source import window_length

LARGEST = 2**26
"""Token ids are below this: the largest vocabularies have a quarter of a million tokens."""

IDS_AT_ONCE = 1 << 20

STATE_ENDINGS = (".npy", ".npz", ".parquet", ".arrow", ".safetensors", ".jsonl", ".csv")
"""The endings of files that are no models."""


class StoredSource(VectorSource):
    """The vectors of a store, cut into windows.

    The windows are the store's own, or have `context` vectors, or are texts with lengths of their
    own (`alone`). Vectors that fill no window come in one shorter window at the end, unless
    `max_tokens` ends the reading. Any batch can be visited, also again.

    >>> from headscan.states.rows import TensorRows
    >>> from headscan.states.vectors import Vectors
    >>> vectors = Vectors("x", {"vectors": TensorRows(torch.zeros(10, 3))})
    >>> source = StoredSource(vectors, context=4, batch=2)
    >>> [(batch.indices.tolist(), batch.ids.shape) for batch in source.batches()]
    [([0, 1], (2, 4)), ([2], (1, 2))]

    Attributes:
        where: the path or URL; None for arrays in memory.
        whole: the number of complete windows, or of texts.
        rest: the number of vectors in the shorter window at the end.
        given_context: the vectors of a window that the user asked for; None: not said.
        starts: the first vector of each text, where each is a window.
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
        self.given_context = context
        self.whole, self.rest = divmod(vectors.count, self.context)
        self.alone = vectors.lengths is not None
        if vectors.lengths is not None:
            self._set_texts(vectors.lengths)
        if max_tokens is not None and max_tokens < vectors.count:
            self._limit(max_tokens)
        self.batch = batch or max(1, 2048 // self.context)
        self.tokens = self.read(self.whole) + self.rest
        self._read = 0
        self.vocabulary = 0 if vectors.ids is None else self._vocabulary(vectors.ids)

    def _set_texts(self, lengths: Rows) -> None:
        """Make each text a window; raise BadInput where their lengths are not the vectors'."""
        numbers = lengths.read(0, lengths.count).long().flatten()
        in_range = numbers.min() >= 1 and numbers.max() <= self.context
        if not in_range or numbers.sum() != self.vectors.count:
            raise BadInput(
                f"{self.name} holds lengths of texts that are not those of its "
                f"{self.vectors.count:,} vectors."
            )
        self.whole = len(numbers)
        self.rest = 0
        self.starts = np.concatenate([[0], np.cumsum(numbers.numpy())])

    def _limit(self, max_tokens: int) -> None:
        """Leave out the windows that end after `max_tokens` vectors."""
        self.whole = max_tokens // self.context
        self.rest = 0
        if self.alone:
            self.whole = int(np.searchsorted(self.starts, max_tokens, side="right")) - 1
        if not self.whole:
            raise BadInput(
                f"--max-tokens must be at least one window of {self.context} vectors, not "
                f"{max_tokens}."
            )

    def _vocabulary(self, ids: Rows) -> int:
        """Return one more than the largest token id; BadInput where no vocabulary has it."""
        vocabulary = self.vectors.vocabulary
        if not vocabulary:
            largest = []
            for start in range(0, self.tokens, IDS_AT_ONCE):
                end = min(start + IDS_AT_ONCE, self.tokens)
                largest.append(int(ids.read(start, end).max()))
            vocabulary = max(largest) + 1
        if vocabulary > LARGEST:
            raise BadInput(
                f"{self.name} holds the token id {vocabulary - 1:,}, which is of no vocabulary."
            )
        return vocabulary

    def width(self, site: str) -> int:
        return self.vectors.sites[site].width

    def batches(
        self, *, start: int = 0, process: int = 0, processes: int = 1, expected: Json = None
    ) -> Iterator[Batch]:
        windows = self.whole + (1 if self.rest else 0)
        if self.alone:
            texts = map(self._text, range(start, windows))
            yield from batches(texts, self.batch, process=process, processes=processes)
            self._read = self.tokens
            return
        first = start
        while first < windows:
            if first < self.whole:
                number = first // self.batch
                last = min((number + 1) * self.batch, self.whole)
            else:  # the shorter window at the end
                number = -(-self.whole // self.batch)
                last = windows
            if number % processes == process:
                yield self._batch(number, first, last)
            first = last
            self._read = min(last * self.context, self.tokens)

    @property
    def has_windows(self) -> bool:
        """The answer to whether the store or the user cuts the vectors into windows of several."""
        by_store = self.alone or self.vectors.window is not None
        by_user = self.given_context is not None
        return self.context > 1 and (by_store or by_user)

    def positioned(self, site: str) -> bool:
        return self.has_windows and super().positioned(site)

    def read(self, windows: int) -> int:
        return int(self.starts[windows]) if self.alone else super().read(windows)

    def _text(self, number: int) -> Window:
        """Return a text of its own length as a window."""
        self._read = self.read(number + 1)
        batch = self._batch(number, number, number + 1)
        return Window(number, batch.ids[0], batch.documents[0])

    def _batch(self, number: int, first: int, last: int) -> Batch:
        """Return the windows first ... last − 1, which have one length."""
        ids = self._numbers(self.vectors.ids, first, last, absent=-1)
        if self.vocabulary and (ids.min() < 0 or ids.max() >= self.vocabulary):
            wrong = ids.min() if ids.min() < 0 else ids.max()
            raise BadInput(f"{self.name} holds the token id {wrong}, of none of its.")
        documents = self._numbers(self.vectors.documents, first, last, absent=0)
        if documents.min() < 0:
            raise BadInput(
                f"{self.name} holds a document with the number {documents.min()}: documents are "
                "counted from 0."
            )
        return Batch(number, np.arange(first, last), ids, documents)

    def _numbers(
        self, rows: Rows | None, first: int, last: int, *, absent: int
    ) -> NDArray[np.int64]:
        """Return the token ids or documents [windows, T]; `absent` where none are known."""
        start = self.read(first)
        end = min(self.read(last), self.tokens)
        windows = last - first
        shape = (windows, (end - start) // windows)
        if rows is None:
            return np.full(shape, absent)
        flat = rows.read(start, end).reshape(-1)
        if flat.is_floating_point():
            is_whole = (flat == flat.floor()).logical_and(flat.abs() < LARGEST)
            if not bool(is_whole.all()):
                raise BadInput(
                    f"{self.name} holds token ids or documents that are no whole numbers."
                )
        return flat.to(torch.int64).numpy().reshape(shape)

    def visit(self, batch: Batch, sites: Sequence[str], each: Each) -> None:
        windows, length = batch.ids.shape
        first_window = int(batch.indices[0])
        first_token = self.read(first_window)
        for site in sites:
            if self.pooled(site):
                first = first_window
                shape = (windows, 1, -1)
                count = windows
            else:
                first = first_token
                shape = (windows, length, -1)
                count = windows * length
            rows = self.vectors.sites[site].read(first, first + count)
            if rows.dtype.itemsize == 1:  # 8-bit numbers have no arithmetic of their own
                rows = rows.float()
            each(site, rows.reshape(shape))

    def passed(self) -> None:
        """Count all vectors as read, because others have read them."""
        self._read = self.tokens

    def identity(self) -> str:
        return self.vectors.identity(self.tokens)

    def record(self) -> ModelRecord:
        first = self.vectors.sites[self.sites[0]]
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
            notes=self._notes(),
        )

    def _notes(self) -> list[str]:
        """Return the cautions for readers of the numbers."""
        cut = f"in windows of {self.context} vectors"
        if not self.has_windows and self.context > 1:
            cut = f"{self.context} consecutive vectors together, none the first of a window"
        if self.alone:
            cut = f"of {self.whole:,} texts, each read by itself"
        notes = [*self.vectors.notes, f"Stored states, {cut}."]
        if self.vectors.model:
            notes.append(f"Made by {self.vectors.model}.")
        for site, rows in self.vectors.sites.items():
            if rows.dtype in EIGHT_BITS:
                kind = str(rows.dtype).removeprefix("torch.")
                notes.append(
                    f"Whole numbers ({kind}) are taken as they stand at {site}: no scale stands "
                    "beside them. Packed bits are read by PATH#SITE:ubinary or PATH#SITE:binary."
                )
        if self.rest:
            notes.append(
                f"The last {self.rest} vectors fill no window: they are in the numbers, not in "
                "their intervals."
            )
        return notes

    def text(self) -> TextRecord:
        windows = -(-self._read // self.context)
        if self.alone:
            windows = int(np.searchsorted(self.starts, self._read))
        return TextRecord(
            source=self.where or self.name,
            tokens=self._read,
            windows=windows,
            dropped=0,
            alone=self.alone,
            context=self.context,
            unit="vectors" if self.vectors.window is None and not self.alone else "tokens",
        )

    def words(self, ids: Sequence[int]) -> list[str]:
        return display(self.tokenizer, ids)


def tensor_of(array: Any, subject: str) -> Tensor:
    """Return an array as a tensor on the CPU, without a copy where possible.

    Raises BadInput where it does not hold numbers; `subject` names it in the message.

    >>> tensor_of([[1.0, 2.0]], "it").shape
    torch.Size([1, 2])
    """
    beginning = subject[0].upper() + subject[1:]
    try:
        tensor = _as_tensor(array)
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        reason = " ".join(str(error).split())[:120]
        raise BadInput(f"{beginning} is no array of numbers: {reason}.") from error
    if tensor.dtype not in DTYPES.values():
        raise BadInput(
            f"{beginning} holds {str(tensor.dtype).removeprefix('torch.')}, which no states are."
        )
    return tensor


def _as_tensor(array: Any) -> Tensor:
    if isinstance(array, Tensor):
        return array.detach().cpu()
    if isinstance(array, np.ndarray):
        return torch.from_numpy(np.require(array, requirements=["C", "W"]))
    if hasattr(array, "__dlpack__"):
        shared: Tensor = torch.utils.dlpack.from_dlpack(array)
        return shared.cpu()
    return torch.as_tensor(np.asarray(array))


def tensor_array(tensor: Tensor) -> Array:
    """Return a tensor in memory as an array of a store."""
    return tensor.shape, lambda count, width: TensorRows(tensor.reshape(count, width))


def flat_items(content: Any, prefix: str = "") -> dict[str, object]:
    """Return what nested dicts, lists and tuples hold, by names that dots join.

    A list of numbers, or of lists of numbers, is an array.

    >>> list(flat_items({"layers": (np.ones((2, 2)), np.ones((2, 2))), "note": "x"}))
    ['layers.0', 'layers.1', 'note']
    """
    if isinstance(content, Mapping):
        items = [(str(key), value) for key, value in content.items()]
    elif isinstance(content, list | tuple) and _holds_arrays(content):
        items = [(str(index), value) for index, value in enumerate(content)]
    else:
        return {prefix: content}
    leaves: dict[str, object] = {}
    for key, value in items:
        leaves |= flat_items(value, f"{prefix}.{key}" if prefix else key)
    return leaves


def _holds_arrays(content: Sequence[Any]) -> bool:
    """Return whether a list holds arrays or dicts, on any level, not numbers."""
    if not content:
        return False
    first = content[0]
    if isinstance(first, list | tuple):
        return _holds_arrays(first)
    return isinstance(first, Mapping) or getattr(first, "ndim", 0) > 0


def of_object(content: Any, name: str = "array", field: str | None = None) -> Vectors:
    """Return the vectors of an array [n, d] or [windows, T, d], or of such by site: in a dict, list
    or tuple, or several in each other.

    Arrays are numpy's, torch's or DLPack's. In a dict `token_ids` and `documents`, [n] or
    [windows, T], are those of the vectors. `field` names the arrays that are read.

    >>> of_object(np.ones((6, 3), dtype=np.float32)).count
    6
    """
    items = flat_items(content)
    if list(items) == [""]:
        items = {"vectors": content}
    arrays = {}
    for site, value in items.items():
        subject = f"the {name}" if len(items) == 1 else f"{name}'s {site}"
        arrays[str(site)] = tensor_array(tensor_of(value, subject))
    return Vectors.of_arrays(name, arrays, f"The {name}", field)


SourceLike = TypeAliasType("SourceLike", ModelLike | VectorSource | Any)
"""A model, or stored states: a path or URL, an array (numpy, torch, DLPack), a dict of arrays by
site.
"""
SourcesLike = TypeAliasType("SourcesLike", SourceLike | Sequence[SourceLike])


def given_sources(sources: SourcesLike) -> list[SourceLike]:
    """Return sources one by one; a list or tuple of numbers is one source.

    >>> len(given_sources(["gpt2", "a.npy"])), len(given_sources("gpt2"))
    (2, 1)
    >>> len(given_sources([[1.0, 2.0], [3.0, 4.0]]))
    1
    """
    if not isinstance(sources, list | tuple):
        return [sources]
    if sources and isinstance(sources[0], int | float | list | tuple):
        return [sources]
    return list(sources)


def stored_source(
    source: SourceLike,
    *,
    context: int | None = None,
    batch: int | None = None,
    max_tokens: int | None = None,
    field: str | None = None,
    tokenizer: Any = None,
) -> VectorSource | None:
    """Return stored states as a source; None where `source` names a model, or is one.

    Args:
        context: vectors of a window where the store has no windows; None: 128.
        batch: windows of a batch.
        max_tokens: only complete windows of so many vectors are read.
        field: the column of a table.
        tokenizer: turns token ids into words.

    Raises BadInput where the states cannot be read, or are none.

    >>> stored_source("gpt-vanilla") is None, stored_source(np.zeros((4, 2))).tokens
    (True, 4)
    """
    if isinstance(source, VectorSource):
        return source
    if isinstance(source, Lens | nn.Module):
        return None
    where = None
    if isinstance(source, str | os.PathLike):
        where = os.fspath(source)
        if is_model(where):
            return None
        vectors = read_states(where, field)
        if vectors is None:
            return None
    elif _is_array_like(source):
        vectors = of_object(source, field=field)
    else:
        raise BadInput(
            "A source is a model, a path or URL of stored states, an array, or a dict of arrays "
            f"by site, not a {type(source).__name__}."
        )
    return StoredSource(
        vectors,
        context=context,
        batch=batch,
        max_tokens=max_tokens,
        tokenizer=tokenizer,
        where=where,
    )


def _is_array_like(source: object) -> bool:
    if isinstance(source, np.ndarray | Tensor | Mapping | list | tuple):
        return True
    return hasattr(source, "__dlpack__")


def is_model(name: str) -> bool:
    """Return whether a name is certainly a model's.

    Models are the embedded ones, .gguf files, and folders whose config.json describes one; a name
    without a file is a Hugging Face id.
    """
    if name in specimens():
        return True
    if "://" in name:
        return False
    path = Path(name).expanduser()
    if not path.exists():
        if path.suffix in STATE_ENDINGS:
            raise BadInput(f"There is no file {name}.")
        return "#" not in name
    if path.is_file():
        return is_gguf(path)
    config = model_folder(path) / "config.json"
    if not config.is_file():
        check_adapter(path)
        check_encoder(path)
        return False
    try:
        return b"model_type" in read_at_most(config)
    except OSError:  # loading it says what is wrong
        return True
