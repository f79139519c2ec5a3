"""Counting with DuckDB, an embedded database that spills to disk under its own memory limit: an oracle for our own sort."""

from __future__ import annotations

import tempfile
from pathlib import Path

import duckdb
import pyarrow as pa

from headscan.text.counts import ContextCounts, TokenStore
from headscan.text.counts.counting import csr_of, gram_batches
from headscan.text.counts.store import CountStore, CountTask, Keys


def count_duckdb(held: TokenStore, order: int, *, memory: int = 1 << 30, min_count: int = 1) -> ContextCounts:
    """Group by all tokens, and order; DuckDB holds `memory` bytes and spills the rest."""
    keys = Keys(order, held.vocabulary)
    names = ", ".join(f"t{place}" for place in range(keys.length))
    context = ", ".join(f"t{place}" for place in range(order))
    kept = "" if min_count <= 1 else f" qualify sum(n) over (partition by {context}) >= {min_count}"
    with tempfile.TemporaryDirectory() as spill, duckdb.connect() as connection:
        connection.execute(f"set memory_limit = '{max(memory // 2**20, 64)}MiB'")
        connection.execute(f"set temp_directory = '{Path(spill)}'")
        schema = pa.schema([(f"t{place}", pa.int32()) for place in range(keys.length)])
        connection.register("grams", pa.RecordBatchReader.from_batches(schema, gram_batches(held, keys)))
        # Two statements: grouping and sorting in one would have both hold their memory at once.
        connection.execute(f"create table counted as select {names}, count(*) as n from grams group by all")
        answer = connection.execute(f"select * from counted{kept} order by {names}").to_arrow_table()
    store = CountStore(
        None, CountTask(order, held.vocabulary, len(held.tokens), len(held.starts), min_count), resume=False
    )
    store.add(0, csr_of(answer, order))
    return store.finish()
