"""Counting: from a corpus of any size to its distinct contexts of K tokens and how often each token
followed each.

Positions count whose whole context lies inside their document. Counting is exact: what is grouped
are the tokens themselves, several packed into an integer, never hashes. Tokens go to a temporary
file; DuckDB groups and orders them within a limit of memory and writes the rest to disk. Beyond one
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

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp

from headscan.run import BadInput, Progress
from headscan.run.spark import check_master, spark_session
from headscan.text.source import Counting, parse_bytes
from headscan.text.token_store import Ids, Int64, TokenStore, store_tokens

Int32 = npt.NDArray[np.int32]

_BATCH = 1 << 22
"""Positions that are packed at once."""

_LEAST_MEMORY = 1 << 27
"""Bytes; DuckDB's own buffers need about half of them."""


@dataclass(frozen=True, eq=False)
class ContextCounts:
    """Distinct contexts in lexicographic order and the tokens that followed them.

    `contexts` int32 [m, order]; CSR arrays `indptr` int64 [m + 1], `indices` int32 [nnz] (next
    tokens, ascending in a row), `counts` int64 [nnz]. `tokens` and `documents` are the sizes of the
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
        """The number of occurrences of each context, int64 [m]."""
        if not len(self.counts):
            return np.zeros(0, dtype=np.int64)
        return np.add.reduceat(self.counts, self.indptr[:-1])

    def matrix(self) -> sp.csr_matrix:
        """Return the counts as scipy CSR [m, vocabulary], float64."""
        shape = (len(self.indptr) - 1, self.vocabulary)
        data = self.counts.astype(np.float64)
        return sp.csr_matrix((data, self.indices, self.indptr), shape=shape)

    def at_least(self, least: int) -> "ContextCounts":
        """Return the counts without the contexts that occurred fewer than `least` times."""
        frequent = self.occurrences >= least
        sizes = np.diff(self.indptr)
        entries = np.repeat(frequent, sizes)
        return ContextCounts(
            contexts=self.contexts[frequent],
            indptr=np.append(0, np.cumsum(sizes[frequent])),
            indices=self.indices[entries],
            counts=self.counts[entries],
            vocabulary=self.vocabulary,
            tokens=self.tokens,
            documents=self.documents,
        )

    def rows(self, contexts: Ids) -> Int64:
        """Return the row of each of some contexts [n, order], -1 for one that was not counted."""
        keys = _row_bytes(contexts)
        rows = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[rows] == keys, rows, -1)

    @cached_property
    def _keys(self) -> npt.NDArray[np.void]:
        return _row_bytes(self.contexts)

    def save(self, folder: Path) -> None:
        """Write contexts.parquet (token_0, ..., occurrences) and counts.safetensors (indptr,
        indices, counts).
        """
        from safetensors.numpy import save_file

        folder.mkdir(parents=True, exist_ok=True)
        columns: dict[str, Ids] = {}
        for position in range(self.order):
            columns[f"token_{position}"] = self.contexts[:, position]
        columns["occurrences"] = self.occurrences
        pq.write_table(pa.table(columns), folder / "contexts.parquet", compression="zstd")
        arrays = {"indptr": self.indptr, "indices": self.indices, "counts": self.counts}
        contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        save_file(contiguous, folder / "counts.safetensors")


def _row_bytes(contexts: Ids) -> npt.NDArray[np.void]:
    """Return each row as one byte string whose order is the lexicographic order of the tokens."""
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
    """Count the next tokens of every context in stored tokens, as `count` does."""
    if not len(store.tokens):
        raise BadInput("The text has no tokens.")
    if store.longest <= settings.order:
        raise BadInput(
            f"No document is longer than the order {settings.order}: the longest of "
            f"{len(store.starts)} has {store.longest} tokens, and a context of {settings.order} "
            "needs one more after it."
        )
    positions = len(store.tokens) - settings.order
    batches = _packed_batches(store, settings.order, 0, positions, progress)
    if settings.engine == "spark":
        table = _grouped_by_spark(batches, str(settings.master), work)
    else:
        memory = max(parse_bytes(settings.memory), _LEAST_MEMORY)
        table = _grouped(batches, memory, work)
    counts = _unpacked_counts(table, store, settings.order)
    if settings.min_count > 1:
        counts = counts.at_least(settings.min_count)
    if not len(counts.contexts):
        raise BadInput(f"No context was seen at least {settings.min_count} times.")
    return counts


def grouped_counts(store: TokenStore, counts: ContextCounts, groups: int) -> list[sp.csr_matrix]:
    """Return count matrices [m, V] of `groups` stretches of the corpus over the contexts of
    `counts`; they sum to its matrix.

    Stretches are runs of whole documents of about equal length, or, where there are fewer documents
    than groups, runs of positions (a block bootstrap: neighbours stay together). Contexts that
    `counts` left out are left out.
    """
    order = counts.order
    positions = len(store.tokens) - order
    cuts = np.linspace(0, positions, groups + 1).astype(np.int64)
    if len(store.starts) >= groups:
        ends = np.append(store.starts, len(store.tokens))
        cuts = np.unique(ends[np.searchsorted(ends, cuts)])
        cuts[-1] = max(int(cuts[-1]), positions)

    matrices = []
    for first, last in pairwise(np.minimum(cuts, positions).tolist()):
        if first == last:
            continue
        table = _grouped(_packed_batches(store, order, first, last))
        stretch = _unpacked_counts(table, store, order)
        rows = np.repeat(counts.rows(stretch.contexts), np.diff(stretch.indptr))
        counted = rows >= 0
        values = stretch.counts[counted].astype(np.float64)
        coordinates = (rows[counted], stretch.indices[counted])
        shape = (len(counts.contexts), counts.vocabulary)
        matrices.append(sp.csr_matrix((values, coordinates), shape=shape))
    return matrices


def _layout(vocabulary: int, order: int) -> tuple[int, list[int]]:
    """Return the bits of a token, and how many tokens each word of a position holds.

    A position, its context and its next token, is stored as 64-bit words w0, w1, ..., each of as
    many tokens as 63 bits hold, which every engine knows, most significant first: equal words mean
    equal tokens, and the order of the words is the lexicographic order of the contexts, then of the
    next tokens.
    """
    bits = max(1, int(vocabulary - 1).bit_length())
    tokens_per_word = 63 // bits
    firsts = range(0, order + 1, tokens_per_word)
    return bits, [min(tokens_per_word, order + 1 - first) for first in firsts]


def _packed_batches(
    store: TokenStore, order: int, first: int, last: int, progress: Progress | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the positions [first, last) that lie inside a document, packed into words."""
    bits, lengths = _layout(store.vocabulary, order)
    names = [f"w{number}" for number in range(len(lengths))]
    for begin in range(first, last, _BATCH):
        end = min(begin + _BATCH, last)
        tokens = np.asarray(store.tokens[begin : end + order])
        inside = store.inside(begin, end, order)
        columns = []
        offset = 0
        for length in lengths:
            word = np.zeros(end - begin, dtype=np.int64)
            for token_offset in range(offset, offset + length):
                word <<= bits
                word |= tokens[token_offset : token_offset + len(word)]
            columns.append(pa.array(word[inside]))
            offset += length
        yield pa.RecordBatch.from_arrays(columns, names=names)
        if progress is not None:
            progress("counting", end - first, last - first, "tokens")


def _unpacked_counts(table: pa.Table, store: TokenStore, order: int) -> ContextCounts:
    """Return the counts of a table of ordered words w0, w1, ... and the count of each row, n."""
    bits, lengths = _layout(store.vocabulary, order)
    mask = (1 << bits) - 1
    tokens = np.empty((order + 1, table.num_rows), dtype=np.int32)
    offset = 0
    for number, length in enumerate(lengths):
        word = table[f"w{number}"].to_numpy()
        for token_offset in range(length):
            shift = bits * (length - 1 - token_offset)
            tokens[offset + token_offset] = (word >> shift) & mask
        offset += length

    begins = np.zeros(table.num_rows, dtype=bool)
    begins[:1] = True
    for column in tokens[:order]:
        begins[1:] |= column[1:] != column[:-1]
    return ContextCounts(
        contexts=np.ascontiguousarray(tokens[:order, begins].T),
        indptr=np.append(np.flatnonzero(begins), table.num_rows),
        indices=tokens[order],
        counts=table["n"].to_numpy().astype(np.int64),
        vocabulary=store.vocabulary,
        tokens=len(store.tokens),
        documents=len(store.starts),
    )


def _grouped(
    batches: Iterator[pa.RecordBatch], memory: int = 1 << 32, work: Path | None = None
) -> pa.Table:
    """Return the distinct rows in order with their counts, by DuckDB.

    It holds `memory` bytes and writes the rest to the folder `work`.
    """
    import duckdb

    first = next(batches)
    names = ", ".join(first.schema.names)
    reader = pa.RecordBatchReader.from_batches(first.schema, chain([first], batches))
    with tempfile.TemporaryDirectory(dir=work) as spill, duckdb.connect() as connection:
        connection.execute(
            f"set memory_limit = '{memory // 2**20}MiB'; set preserve_insertion_order = false"
        )
        connection.execute("set temp_directory = ?", [spill])
        connection.register("rows", reader)
        # Two statements: grouping and ordering in one would have both hold their memory at once.
        connection.execute(
            f"create table counted as select {names}, count(*) as n from rows group by all"
        )
        return connection.sql(f"select * from counted order by {names}").to_arrow_table()


def _grouped_by_spark(
    batches: Iterator[pa.RecordBatch], master: str, work: Path | None
) -> pa.Table:
    """Return the distinct rows in order with their counts, by Spark on the cluster `master`.

    Its workers all see the folder `work`: rows are written there as Parquet, and read back.
    """
    if work is None:
        raise BadInput('The engine "spark" needs a folder that every worker sees.')
    check_master(master)
    folder = (work / "spark").resolve()
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "rows").mkdir(parents=True)
    names: list[str] = []
    for number, batch in enumerate(batches):
        pq.write_table(pa.Table.from_batches([batch]), folder / "rows" / f"{number:06d}.parquet")
        names = batch.schema.names
    with spark_session(master) as session:
        rows = session.read.parquet(str(folder / "rows"))
        counted = rows.groupBy(*names).count().withColumnRenamed("count", "n")
        counted.write.parquet(str(folder / "counted"))
    table = pq.read_table(folder / "counted").sort_by([(name, "ascending") for name in names])
    shutil.rmtree(folder, ignore_errors=True)
    return table
