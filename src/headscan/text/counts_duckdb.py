"""Counting with DuckDB: an embedded database that spills to disk under its own memory limit (extra `duckdb`)."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from headscan.errors import BadInput
from headscan.text.counts_keys import Keys, run_bounds
from headscan.text.counts_spool import Spool
from headscan.text.counts_store import CountStore

__all__ = ["count_duckdb"]

Progress = Callable[[str, int, int | None], None]
_CHUNK = 1 << 22


def batches(spool: Spool, keys: Keys) -> Iterator[pa.RecordBatch]:
    """The positions of a corpus as rows of `order + 1` token columns t0, t1, ..., in chunks of four million."""
    names = [f"t{place}" for place in range(keys.length)]
    total = len(spool.tokens) - keys.order
    for first in range(0, total, _CHUNK):
        last = min(first + _CHUNK, total)
        part = np.asarray(spool.tokens[first : last + keys.order]).astype(np.int32)
        valid = spool.positions(first, last, keys.order)
        columns = [part[place : place + last - first] for place in range(keys.length)]
        yield pa.RecordBatch.from_arrays([pa.array(c if valid is None else c[valid]) for c in columns], names=names)


def count_duckdb(
    spool: Spool, keys: Keys, store: CountStore, *, memory: int, min_count: int, progress: Progress | None
) -> None:
    """Group by all tokens, order, and keep the answer in `store`; DuckDB holds `memory` bytes and spills the rest."""
    try:
        import duckdb
    except ImportError:
        raise BadInput('The engine "duckdb" needs the package duckdb: pip install "headscan[duckdb]".') from None
    if not store.needs(0):
        return
    names = ", ".join(f"t{place}" for place in range(keys.length))
    context = ", ".join(f"t{place}" for place in range(keys.order))
    kept = "" if min_count <= 1 else f" qualify sum(n) over (partition by {context}) >= {min_count}"
    with tempfile.TemporaryDirectory(dir=store.folder) as spill, duckdb.connect() as connection:
        connection.execute(f"set memory_limit = '{max(memory // 2**20, 64)}MiB'")
        connection.execute(f"set temp_directory = '{spill}'")
        schema = pa.schema([(f"t{place}", pa.int32()) for place in range(keys.length)])
        connection.register("grams", pa.RecordBatchReader.from_batches(schema, batches(spool, keys)))
        if progress is not None:
            progress("counting", 0, None)
        # Two statements: grouping and sorting in one would have both hold their memory at once.
        connection.execute(f"create table counted as select {names}, count(*) as n from grams group by all")
        answer = connection.execute(f"select * from counted{kept} order by {names}").to_arrow_table()
    store.add(0, *csr_of(answer, keys.order))


def csr_of(table: pa.Table, order: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(contexts, indptr, next tokens, counts) from a table of token columns in lexicographic order and counts n."""
    columns = [table[f"t{place}"].to_numpy().astype(np.int32, copy=False) for place in range(order + 1)]
    contexts = np.stack(columns[:order]).T
    bounds = run_bounds(contexts)
    return contexts[bounds[:-1]], bounds, columns[order], table["n"].to_numpy().astype(np.int64)
