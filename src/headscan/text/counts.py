"""Counting: from a corpus of any size to its distinct contexts of K tokens and how often each token
followed each.

Positions count whose whole context lies inside their document. Counting is exact: what is grouped
are the tokens themselves, several packed into an integer, never hashes. Tokens go to a temporary
file; DuckDB groups and orders them within a limit of memory and keeps the rest on disk. Beyond one
machine there is Spark (extra `spark`). An interrupted count begins again: it takes less time than
reading the text (benchmarks/counting_takes_up_to_three_times_as_long_as_duckdb_and_polars.py).
"""

import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp

from headscan.run import BadInput, Progress, TextRecord
from headscan.run.spark import check_master, spark_session
from headscan.text.documents import documents as read_documents
from headscan.text.source import Counting, Reading, TextIdentity, TextLike, parse_bytes, source_name
from headscan.text.tokens import tokenise, tokenizer_identity

Ids = npt.NDArray[np.integer[Any]]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
_BATCH = 1 << 22  # positions that are packed at once
_LEAST_MEMORY = 1 << 27  # bytes; DuckDB's own buffers need about half of it


# ---- The tokens of a corpus, document after document, on disk.


@dataclass(frozen=True, eq=False)
class TokenStore:
    """`tokens` uint16 or uint32 [n], a memory map of a temporary file, and `starts` int64
    [documents], where each begins.
    """

    tokens: Ids
    starts: Int64
    vocabulary: int

    @property
    def longest(self) -> int:
        return int(np.diff(self.starts, append=len(self.tokens)).max()) if len(self.starts) else 0

    def inside(self, first: int, last: int, order: int) -> npt.NDArray[np.bool_]:
        """Which positions i of [first, last) have the context i .. i + order - 1 and the next token
        in one document.
        """
        ends = np.append(self.starts[1:], len(self.tokens))
        ends = ends[
            np.searchsorted(ends, first, side="right") : np.searchsorted(
                ends, last + order, side="right"
            )
        ]
        inside = np.ones(last - first, dtype=bool)
        for back in range(1, order + 1):
            hit = ends - back - first
            inside[hit[(hit >= 0) & (hit < len(inside))]] = False
        return inside


class _Writer:
    """Appends the tokens of documents to a temporary file, which is gone when nobody holds it any
    more.
    """

    def __init__(self, vocabulary: int, work: Path | None) -> None:
        if vocabulary < 1:
            raise BadInput("The vocabulary is empty.")
        if work is not None:
            work.mkdir(parents=True, exist_ok=True)
        self.vocabulary = vocabulary
        self.tokens = 0
        self.dtype = np.dtype(np.uint16 if vocabulary <= 1 << 16 else np.uint32)
        self.file = tempfile.TemporaryFile(dir=work)  # noqa: SIM115 (closed by `finish`)
        self.starts: list[int] = []

    def add(self, ids: Ids, *, begins: bool) -> None:
        if begins:
            self.starts.append(self.tokens)
        if len(ids) and (ids.min() < 0 or ids.max() >= self.vocabulary):
            raise BadInput(f"A token id lies outside the vocabulary of {self.vocabulary}.")
        self.file.write(ids.astype(self.dtype).tobytes())
        self.tokens += len(ids)

    def finish(self) -> TokenStore:
        self.file.flush()
        with self.file:
            tokens = (
                np.memmap(self.file, self.dtype, "r")
                if self.tokens
                else np.zeros(0, dtype=self.dtype)
            )
        # Documents without tokens have no positions: their starts would only repeat.
        starts = np.unique(np.asarray(self.starts, dtype=np.int64))
        return TokenStore(tokens, starts[starts < self.tokens], self.vocabulary)


def store_tokens(documents: Iterable[Ids], vocabulary: int, work: Path | None = None) -> TokenStore:
    """Store documents of token ids in a temporary file (in the folder `work`)."""
    writer = _Writer(vocabulary, work)
    for document in documents:
        writer.add(np.asarray(document, dtype=np.int64), begins=True)
    return writer.finish()


def store_text(
    source: TextLike,
    tokenizer: Any,
    reading: Reading,
    work: Path | None = None,
    *,
    progress: Progress | None = None,
) -> tuple[TokenStore, TextRecord]:
    """Store the tokens of a text, tokenised in a stream; say which text it was."""
    writer = _Writer(len(tokenizer), work)
    identity = TextIdentity(source_name(source))
    limit = reading.max_tokens
    for stretch in tokenise(
        read_documents(source, documents=reading.documents, field=reading.field), tokenizer
    ):
        identity.add(stretch.text, begins=stretch.begins)
        writer.add(
            stretch.ids if limit is None else stretch.ids[: limit - writer.tokens],
            begins=stretch.begins,
        )
        if progress is not None:
            progress("reading", writer.tokens, limit, "tokens")
        if writer.tokens == limit:
            break
    identity.finish()
    mark = identity.mark()
    store = writer.finish()
    record = TextRecord(
        source=identity.name,
        sha256=mark.sha256,
        characters=mark.characters,
        documents=len(store.starts),
        tokens=len(store.tokens),
        tokenizer=tokenizer_identity(tokenizer),
    )
    return store, record


# ---- Counts.


@dataclass(frozen=True, eq=False)
class ContextCounts:
    """Distinct contexts in lexicographic order and the tokens that followed them.

    `contexts` int32 [m, order]; CSR arrays `indptr` int64 [m + 1], `indices` int32 [nnz] (next
    tokens, ascending in a row), `counts` int64 [nnz]. `tokens` and `documents` are those of the
    text.
    """

    contexts: Int32
    indptr: Int64
    indices: Int32
    counts: Int64
    vocabulary: int
    tokens: int
    documents: int

    @property
    def order(self) -> int:
        return int(self.contexts.shape[1])

    @property
    def occurrences(self) -> Int64:
        """How often each context was seen, int64 [m]."""
        return (
            np.add.reduceat(self.counts, self.indptr[:-1])
            if len(self.counts)
            else np.zeros(0, dtype=np.int64)
        )

    def matrix(self) -> sp.csr_matrix:
        """The counts as scipy CSR [m, vocabulary], float64."""
        shape = (len(self.indptr) - 1, self.vocabulary)
        return sp.csr_matrix(
            (self.counts.astype(np.float64), self.indices, self.indptr), shape=shape
        )

    def at_least(self, least: int) -> "ContextCounts":
        """The counts without the contexts that were seen fewer than `least` times."""
        kept = self.occurrences >= least
        sizes = np.diff(self.indptr)
        entries = np.repeat(kept, sizes)
        return ContextCounts(
            self.contexts[kept],
            np.append(0, np.cumsum(sizes[kept])),
            self.indices[entries],
            self.counts[entries],
            self.vocabulary,
            self.tokens,
            self.documents,
        )

    def rows(self, contexts: Ids) -> Int64:
        """The row of each of some contexts [n, order], -1 for one that was not counted."""
        wanted = _bytes(contexts)
        place = np.minimum(np.searchsorted(self._keys, wanted), len(self._keys) - 1)
        return np.where(self._keys[place] == wanted, place, -1)

    @cached_property
    def _keys(self) -> npt.NDArray[np.void]:
        return _bytes(self.contexts)

    def save(self, folder: Path) -> None:
        """Write contexts.parquet (token_0, ..., occurrences) and counts.safetensors (indptr,
        indices, counts).
        """
        from safetensors.numpy import save_file

        folder.mkdir(parents=True, exist_ok=True)
        columns = {f"token_{place}": self.contexts[:, place] for place in range(self.order)}
        pq.write_table(
            pa.table(columns | {"occurrences": self.occurrences}),
            folder / "contexts.parquet",
            compression="zstd",
        )
        arrays = {
            name: np.ascontiguousarray(getattr(self, name))
            for name in ("indptr", "indices", "counts")
        }
        save_file(arrays, folder / "counts.safetensors")


def _bytes(contexts: Ids) -> npt.NDArray[np.void]:
    """Each row as one byte string whose order is the lexicographic order of the tokens."""
    big_endian = np.ascontiguousarray(np.asarray(contexts).astype(">i4"))
    return big_endian.view(np.dtype((np.void, 4 * big_endian.shape[1]))).ravel()


def count(
    documents: Iterable[Ids], vocabulary: int, settings: Counting, *, work: Path | None = None
) -> ContextCounts:
    """Count the next tokens of every context of `settings.order` tokens in documents of token ids,
    int [n] each.

    `work` is a folder for what leaves memory (default: the system's temporary one); Spark's workers
    must all see it. Raises `BadInput` where no document is longer than the order, the vocabulary is
    empty, or an id lies outside it.

    >>> counts = count([np.array([0, 1, 2, 0, 1, 0])], 3, Counting(order=2))
    >>> counts.contexts.tolist(), counts.indices.tolist(), counts.counts.tolist()
    ([[0, 1], [1, 2], [2, 0]], [0, 2, 0, 1], [1, 1, 1, 1])
    """
    return count_tokens(store_tokens(documents, vocabulary, work), settings, work=work)


def count_tokens(
    store: TokenStore,
    settings: Counting,
    *,
    work: Path | None = None,
    progress: Progress | None = None,
) -> ContextCounts:
    """What `count` does once the tokens are stored."""
    if not len(store.tokens):
        raise BadInput("The text has no tokens.")
    if store.longest <= settings.order:
        raise BadInput(
            f"No document is longer than the order {settings.order}: the longest of "
            f"{len(store.starts)} has {store.longest} tokens, and a context of {settings.order} "
            "needs one more after it."
        )
    batches = _batches(store, settings.order, 0, len(store.tokens) - settings.order, progress)
    if settings.engine == "spark":
        table = _grouped_by_spark(batches, str(settings.master), work)
    else:
        table = _grouped(batches, max(parse_bytes(settings.memory), _LEAST_MEMORY), work)
    counts = _counts(table, store, settings.order)
    if settings.min_count > 1:
        counts = counts.at_least(settings.min_count)
    if not len(counts.contexts):
        raise BadInput(f"No context was seen at least {settings.min_count} times.")
    return counts


def grouped_counts(store: TokenStore, counts: ContextCounts, groups: int) -> list[sp.csr_matrix]:
    """Count matrices [m, V] of `groups` stretches of the corpus over the contexts of `counts`; they
    sum to its matrix.

    Stretches are runs of whole documents of about equal length, or, where there are fewer documents
    than groups, runs of positions (a block bootstrap: neighbours stay together). Contexts that
    `counts` left out are left out.
    """
    order, total = counts.order, len(store.tokens) - counts.order
    cuts = np.linspace(0, total, groups + 1).astype(np.int64)
    if len(store.starts) >= groups:
        ends = np.append(store.starts, len(store.tokens))
        cuts = np.unique(ends[np.searchsorted(ends, cuts)])
        cuts[-1] = max(int(cuts[-1]), total)
    matrices = []
    for first, last in pairwise(np.minimum(cuts, total).tolist()):
        if first < last:
            part = _counts(_grouped(_batches(store, order, first, last)), store, order)
            row = np.repeat(counts.rows(part.contexts), np.diff(part.indptr))
            kept = row >= 0
            entries = (part.counts[kept].astype(np.float64), (row[kept], part.indices[kept]))
            matrices.append(sp.csr_matrix(entries, shape=(len(counts.contexts), counts.vocabulary)))
    return matrices


# ---- Positions as rows of 64-bit words w0, w1, ..., each of as many tokens as it holds, most significant first: equal means equal, and the order of the words is the lexicographic order of the contexts, then of the next tokens.


def _layout(vocabulary: int, order: int) -> tuple[int, list[int]]:
    """Bits of a token, and tokens of each word of a context and its next token: 63 bits, which
    every engine knows.
    """
    bits = max(1, int(vocabulary - 1).bit_length())
    return bits, [min(63 // bits, order + 1 - first) for first in range(0, order + 1, 63 // bits)]


def _batches(
    store: TokenStore, order: int, first: int, last: int, progress: Progress | None = None
) -> Iterator[pa.RecordBatch]:
    bits, lengths = _layout(store.vocabulary, order)
    for begin in range(first, last, _BATCH):
        end = min(begin + _BATCH, last)
        tokens = np.asarray(store.tokens[begin : end + order])
        inside = store.inside(begin, end, order)
        place = 0
        columns = []
        for length in lengths:
            word = np.zeros(end - begin, dtype=np.int64)
            for offset in range(place, place + length):
                word <<= bits
                word |= tokens[offset : offset + len(word)]
            columns.append(pa.array(word[inside]))
            place += length
        yield pa.RecordBatch.from_arrays(
            columns, names=[f"w{number}" for number in range(len(lengths))]
        )
        if progress is not None:
            progress("counting", end - first, last - first, "tokens")


def _counts(table: pa.Table, store: TokenStore, order: int) -> ContextCounts:
    """Counts from a table of words in their order and of how often each row occurs, n."""
    bits, lengths = _layout(store.vocabulary, order)
    tokens = np.empty((order + 1, table.num_rows), dtype=np.int32)
    place = 0
    for number, length in enumerate(lengths):
        word = table[f"w{number}"].to_numpy()
        for offset in range(length):
            tokens[place + offset] = (word >> (bits * (length - 1 - offset))) & ((1 << bits) - 1)
        place += length
    begins = np.zeros(table.num_rows, dtype=bool)
    begins[:1] = True
    for column in tokens[:order]:
        begins[1:] |= column[1:] != column[:-1]
    indptr = np.append(np.flatnonzero(begins), table.num_rows)
    return ContextCounts(
        np.ascontiguousarray(tokens[:order, begins].T),
        indptr,
        tokens[order],
        table["n"].to_numpy().astype(np.int64),
        store.vocabulary,
        len(store.tokens),
        len(store.starts),
    )


def _grouped(
    batches: Iterator[pa.RecordBatch], memory: int = 1 << 32, work: Path | None = None
) -> pa.Table:
    """Group equal rows in order; DuckDB holds `memory` bytes and keeps the rest in the folder
    `work`.
    """
    import duckdb

    first = next(batches)
    names = ", ".join(first.schema.names)
    with tempfile.TemporaryDirectory(dir=work) as spill, duckdb.connect() as connection:
        connection.execute(
            f"set memory_limit = '{memory // 2**20}MiB'; set preserve_insertion_order = false"
        )
        connection.execute("set temp_directory = ?", [spill])
        connection.register(
            "rows", pa.RecordBatchReader.from_batches(first.schema, chain([first], batches))
        )
        # Two statements: grouping and ordering in one would have both hold their memory at once.
        connection.execute(
            f"create table counted as select {names}, count(*) as n from rows group by all"
        )
        return connection.sql(f"select * from counted order by {names}").to_arrow_table()


def _grouped_by_spark(
    batches: Iterator[pa.RecordBatch], master: str, work: Path | None
) -> pa.Table:
    """The same on the cluster `master`, whose workers all see `work`: rows are written there as
    Parquet, and read back.
    """
    if work is None:
        raise BadInput('The engine "spark" needs a folder that every worker sees.')
    check_master(master)
    place = (work / "spark").resolve()
    shutil.rmtree(place, ignore_errors=True)
    (place / "rows").mkdir(parents=True)
    names: list[str] = []
    for number, batch in enumerate(batches):
        pq.write_table(pa.Table.from_batches([batch]), place / "rows" / f"{number:06d}.parquet")
        names = batch.schema.names
    with spark_session(master) as session:
        frame = (
            session.read.parquet(str(place / "rows"))
            .groupBy(*names)
            .count()
            .withColumnRenamed("count", "n")
        )
        frame.write.parquet(str(place / "counted"))
    table = pq.read_table(place / "counted").sort_by([(name, "ascending") for name in names])
    shutil.rmtree(place, ignore_errors=True)
    return table
