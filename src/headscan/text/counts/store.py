"""Where counts are kept: parts of Parquet (contexts) and safetensors (CSR) under one manifest, whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp
from safetensors.numpy import load, save_file

from headscan.run import BadInput, write_atomic
from headscan.text.counts.tokens import TokenStore

# ---- Contexts as integers: K + 1 tokens side by side in one or more 64-bit words, so that equal means equal.

Packed = npt.NDArray[np.uint64]
"""Keys: uint64 [n], or [n, words]."""
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]


def run_bounds(values: npt.NDArray[Any]) -> Int64:
    """Where each run of equal values, or of equal rows [n, k], begins in a sorted array, then its length.

    >>> run_bounds(np.array([3, 3, 5])).tolist()
    [0, 2, 3]
    """
    # One flag more than values: the end comes out of the same pass, and no large array is copied to append it.
    flags = np.empty(len(values) + 1, dtype=bool)
    flags[0] = flags[-1] = True
    if len(values):
        if values.ndim == 1:
            np.not_equal(values[1:], values[:-1], out=flags[1:-1])
        else:
            flags[1:-1] = (values[1:] != values[:-1]).any(1)
    return np.flatnonzero(flags)


class Keys:
    """Packs `order` context tokens and the next one, most significant first: sorting keys sorts contexts, then next
    tokens.

    With b = bits of a token, `order + 1` tokens of b bits fit one word as long as (order + 1) b <= 64 ("narrow": 16
    tokens of 4 bits, 5 of 12, 4 of 16). Longer keys take several words; those are ranked word by word before they are
    sorted, which is as exact and about three times slower.

    >>> keys = Keys(order=2, vocabulary=10)
    >>> packed = keys.pack(np.array([1, 2, 3, 4], dtype=np.uint16))
    >>> keys.unpack(packed).tolist()
    [[1, 2, 3], [2, 3, 4]]
    """

    def __init__(self, order: int, vocabulary: int) -> None:
        self.order, self.vocabulary = order, vocabulary
        self.bits = max(1, int(vocabulary - 1).bit_length())
        self.length = order + 1
        self.per_word = 64 // self.bits
        self.words = -(-self.length // self.per_word)
        self.narrow = self.words == 1
        self.mask = np.uint64((1 << self.bits) - 1)

    def pack(self, tokens: npt.NDArray[np.integer[Any]]) -> Packed:
        """Keys of every position with a next token: uint64 [n - order] if narrow, else [n - order, words]."""
        count = max(len(tokens) - self.order, 0)
        columns = []
        for first in range(0, self.length, self.per_word):
            word = np.zeros(count, dtype=np.uint64)
            for place in range(first, min(first + self.per_word, self.length)):
                np.left_shift(word, np.uint64(self.bits), out=word)
                np.bitwise_or(word, tokens[place : place + count], out=word)
            columns.append(word)
        return columns[0] if self.narrow else np.stack(columns, axis=1)

    def unpack(self, keys: Packed) -> Int32:
        """The tokens of the keys, int32 [n, order + 1]."""
        words = keys[:, None] if self.narrow else keys
        lengths = [min(self.per_word, self.length - word * self.per_word) for word in range(self.words)]
        return np.concatenate([self._tokens(words[:, w], length) for w, length in enumerate(lengths)], axis=1)

    def group(self, keys: Packed, counts: Int64 | None = None) -> tuple[Packed, Int64]:
        """Sort keys and merge equal ones: (distinct keys ascending, counts int64); no `counts` means one each."""
        if self.narrow and counts is None:
            ordered = np.sort(keys)
        else:
            order = np.argsort(keys) if self.narrow else np.lexsort(keys.T[::-1])
            ordered = keys[order]
        bounds = run_bounds(ordered)
        if counts is None:
            return ordered[bounds[:-1]], np.diff(bounds)
        sums = np.add.reduceat(counts[order], bounds[:-1]) if len(keys) else np.zeros(0, dtype=np.int64)
        return ordered[bounds[:-1]], sums

    def split(self, keys: Packed, splitters: Packed) -> Int64:
        """Where sorted keys fall into the ranges that `splitters` (first words) cut: int64 [len(splitters) + 2]."""
        first = keys if self.narrow else keys[:, 0]
        return np.concatenate([[0], np.searchsorted(first, splitters, side="left"), [len(keys)]])

    def first_word(self, keys: Packed) -> Packed:
        """The leading word, uint64 [n], by which ranges are cut; with the next token left out of it."""
        return (keys >> np.uint64(self.bits)) << np.uint64(self.bits) if self.narrow else keys[:, 0]

    def csr(self, keys: Packed) -> tuple[Int32, Int64, Int32]:
        """Sorted distinct keys as CSR: (contexts int32 [m, order], indptr int64 [m + 1], next tokens int32 [nnz])."""
        if self.narrow:
            of_context = keys >> np.uint64(self.bits)
            bounds = run_bounds(of_context)
            contexts = self._tokens(of_context[bounds[:-1]], self.order)
            return contexts, bounds, (keys & self.mask).astype(np.int32)
        tokens = self.unpack(keys)
        bounds = run_bounds(tokens[:, : self.order])
        return tokens[bounds[:-1], : self.order], bounds, np.ascontiguousarray(tokens[:, -1])

    def _tokens(self, words: Packed, count: int) -> Int32:
        """The last `count` tokens of one word each, int32 [n, count], stored column by column."""
        tokens = np.empty((count, len(words)), dtype=np.int32)
        for place in range(count):
            tokens[place] = (words >> np.uint64(self.bits * (count - 1 - place))) & self.mask
        return tokens.T


_MANIFEST = "counts.json"


@dataclass(frozen=True)
class CountTask:
    """What is counted, and of which tokens (by the checksum of their store): a count is resumed for the same task only."""

    order: int
    vocabulary: int
    tokens: int
    documents: int
    min_count: int = 1
    sha256: str = ""
    engine: str = "sort"


@dataclass(frozen=True, eq=False)
class CountPart:
    """The counts of one key range: arrays as in `ContextCounts`."""

    contexts: Int32
    indptr: Int64
    indices: Int32
    counts: Int64


@dataclass(frozen=True, eq=False)
class ContextCounts(CountPart):
    """Distinct contexts in lexicographic order and the tokens that followed them.

    `contexts` int32 [m, order]; CSR arrays `indptr` int64 [m + 1], `indices` int32 [nnz] (next tokens, ascending in a
    row), `counts` int64 [nnz]. `task` says of what.

    For full prefixes (`headscan.text.counts.count_prefixes`) contexts have no fixed length: then `contexts` is int32
    [m, 2], the row of the prefix one token shorter (-1: empty) and the last token, and `order` is 0.
    """

    task: CountTask

    @property
    def order(self) -> int:
        return self.task.order

    @property
    def vocabulary(self) -> int:
        return self.task.vocabulary

    @property
    def tokens(self) -> int:
        return self.task.tokens

    @property
    def documents(self) -> int:
        return self.task.documents

    @property
    def occurrences(self) -> Int64:
        return occurrences(self)

    def matrix(self) -> sp.csr_matrix:
        """The counts as scipy CSR [m, vocabulary], float64."""
        shape = (len(self.indptr) - 1, self.vocabulary)
        return sp.csr_matrix((self.counts.astype(np.float64), self.indices, self.indptr), shape=shape)

    def save(self, folder: str | Path) -> Path:
        """Write counts.json, contexts.parquet and counts.safetensors."""
        store = CountStore(Path(folder), self.task, resume=False)
        store.add(0, self)
        store.finish()
        return Path(folder)

    @classmethod
    def load(cls, folder: str | Path) -> ContextCounts:
        """Read what `save` or a count with a folder wrote. Raises `BadInput` where there is no finished count."""
        try:
            manifest = json.loads((Path(folder) / _MANIFEST).read_text(encoding="utf-8"))
            task = CountTask(**manifest["task"])
        except (OSError, ValueError, TypeError, KeyError):
            raise BadInput(f"{folder} holds no counts.") from None
        if not manifest.get("finished"):
            raise BadInput(f"The count in {folder} is not finished; resume it.")
        return CountStore(Path(folder), task, resume=True).result()


def occurrences(part: CountPart) -> Int64:
    """How often each context of a part was seen, int64 [m]."""
    return np.add.reduceat(part.counts, part.indptr[:-1]) if len(part.counts) else np.zeros(0, dtype=np.int64)


def _written(path: Path, write: Callable[[Path], object]) -> str:
    """Have a file written aside and put in its place once it is on the disk; its checksum. It is never held in memory."""
    aside, sha = path.with_suffix(".new"), hashlib.sha256()
    write(aside)
    with aside.open("rb") as file:
        while block := file.read(1 << 22):
            sha.update(block)
        os.fsync(file.fileno())
    aside.replace(path)
    return sha.hexdigest()


class CountStore:
    """Parts as they are finished. Part n holds the contexts of the n-th key range, so parts in order are sorted.

    On disk the manifest has the checksums of each part's two files, which are on the disk before it says so.
    """

    def __init__(self, folder: Path | None, task: CountTask, *, resume: bool, work: Path | None = None) -> None:
        self.folder, self.task = folder, task
        self.work = folder / "work" if work is None and folder is not None else work
        self.parts: dict[int, CountPart | dict[str, str]] = {}
        self.finished = False
        if folder is None:
            return
        folder.mkdir(parents=True, exist_ok=True)
        manifest = folder / _MANIFEST
        if resume and manifest.exists():
            try:
                kept = json.loads(manifest.read_text(encoding="utf-8"))
                was = CountTask(**kept["task"])
                self.parts = {int(number): dict(files) for number, files in kept["parts"].items()}
                self.finished = bool(kept["finished"])
            except (OSError, ValueError, TypeError, KeyError, AttributeError):
                raise self._damaged(manifest) from None
            changed = [name for name, value in asdict(task).items() if getattr(was, name) != value]
            if changed:
                raise BadInput(
                    f"The count to resume in {folder} was another one ({', '.join(changed)} differ); "
                    f"start afresh in another folder."
                )
        else:
            for old in (*folder.glob("counts-*.safetensors"), *folder.glob("contexts-*.parquet")):
                old.unlink()  # of an earlier count, which may have had more parts
            self._write_manifest()

    def needs(self, number: int) -> bool:
        """Whether a part is still to be counted."""
        return number not in self.parts

    def add(self, number: int, part: CountPart) -> None:
        """Keep one part: in memory, or on disk first and then in the manifest."""
        if self.folder is None:
            self.parts[number] = part
            return
        tensors, table = self._paths(number)
        arrays = {name: np.ascontiguousarray(getattr(part, name)) for name in ("indptr", "indices", "counts")}
        columns = {f"token_{place}": part.contexts[:, place] for place in range(part.contexts.shape[1])}
        rows = pa.table(columns | {"occurrences": occurrences(part)})
        self.parts[number] = {
            tensors.name: _written(tensors, lambda aside: save_file(arrays, aside)),
            table.name: _written(table, lambda aside: pq.write_table(rows, aside, compression="zstd")),
        }
        self._write_manifest()

    def finish(self) -> ContextCounts:
        """Declare the count complete."""
        self.finished = True
        if self.folder is not None:
            self._write_manifest()
        return self.result()

    def result(self) -> ContextCounts:
        """All parts joined."""
        parts = [self._load(number) for number in sorted(self.parts)]
        if len(parts) == 1:
            one = parts[0]
            return ContextCounts(one.contexts, one.indptr, one.indices, one.counts, self.task)
        offsets = np.cumsum(np.array([0, *(int(part.indptr[-1]) for part in parts)]))
        indptr = [part.indptr[:-1] + offset for part, offset in zip(parts, offsets[:-1], strict=True)]
        return ContextCounts(
            contexts=np.concatenate([part.contexts for part in parts]),
            indptr=np.append(np.concatenate(indptr), offsets[-1]).astype(np.int64),
            indices=np.concatenate([part.indices for part in parts]),
            counts=np.concatenate([part.counts for part in parts]),
            task=self.task,
        )

    def _paths(self, number: int) -> tuple[Path, Path]:
        assert self.folder is not None
        return self.folder / f"counts-{number:05d}.safetensors", self.folder / f"contexts-{number:05d}.parquet"

    def _load(self, number: int) -> CountPart:
        kept = self.parts[number]
        if isinstance(kept, CountPart):
            return kept
        tensors, table = (self._sound(path, kept) for path in self._paths(number))
        columns = pq.read_table(BytesIO(table))
        names = [name for name in columns.column_names if name.startswith("token_")]
        contexts = np.stack([columns[name].to_numpy() for name in names]).astype(np.int32, copy=False).T
        return CountPart(contexts, **load(tensors))

    def _sound(self, path: Path, files: dict[str, str]) -> bytes:
        try:
            data = path.read_bytes()
        except OSError:
            data = b""
        if hashlib.sha256(data).hexdigest() != files.get(path.name):
            raise self._damaged(path)
        return data

    def _damaged(self, path: Path) -> BadInput:
        return BadInput(f"What was stored of the count is damaged ({path}): start afresh without --resume.")

    def _write_manifest(self) -> None:
        assert self.folder is not None
        state: dict[str, Any] = {"task": asdict(self.task), "parts": self.parts, "finished": self.finished}
        write_atomic(self.folder / _MANIFEST, json.dumps(state, indent=1))


# ---- The same contexts counted in groups of documents, for error bars over documents.


def grouped_counts(held: TokenStore, counts: ContextCounts, groups: int) -> list[sp.csr_matrix]:
    """Count matrices [m, V] of `groups` stretches of the corpus over the contexts of `counts`; they sum to its matrix.

    Stretches are runs of whole documents of about equal length, or, where there are fewer documents than groups, runs of
    positions (a block bootstrap: neighbours stay together). Contexts that `counts` left out are left out. Memory: one
    key a token.
    """
    keys = Keys(counts.order, counts.vocabulary)
    order = counts.order
    total = len(held.tokens) - order
    cuts = np.linspace(0, total, groups + 1).astype(np.int64)
    if len(held.starts) >= groups:
        ends = np.append(held.starts, len(held.tokens))
        cuts = np.unique(ends[np.searchsorted(ends, cuts)])
        cuts[-1] = max(int(cuts[-1]), total)
    table = _rows(counts.contexts)
    matrices = []
    for first, last in pairwise(cuts.tolist()):
        last = min(last, total)
        if last <= first:
            continue
        packed = keys.pack(np.asarray(held.tokens[first : last + order]))
        valid = held.positions(first, last, order)
        found, times = keys.group(packed if valid is None else packed[valid])
        contexts, bounds, following = keys.csr(found)
        wanted = _rows(contexts)
        at = np.minimum(np.searchsorted(table, wanted), len(table) - 1)
        row = np.where(table[at] == wanted, at, -1)
        of_entry = np.repeat(row, np.diff(bounds))
        kept = of_entry >= 0
        shape = (len(table), counts.vocabulary)
        entries = (times[kept].astype(np.float64), (of_entry[kept], following[kept]))
        matrices.append(sp.csr_matrix(entries, shape=shape))
    return matrices


def _rows(contexts: npt.NDArray[np.int32]) -> npt.NDArray[np.void]:
    """Each row as one byte string whose order is the lexicographic order of the tokens."""
    big_endian = np.ascontiguousarray(contexts.astype(">i4"))
    return big_endian.view(np.dtype((np.void, 4 * contexts.shape[1]))).ravel()
