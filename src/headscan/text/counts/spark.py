"""The same count on a Spark cluster, for a corpus that outgrows one machine (extra `spark`; Java 17 or 21)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headscan.run import BadInput, Progress
from headscan.run.spark import check_master, spark_session
from headscan.text.counts.keys import Keys, run_bounds
from headscan.text.counts.store import CountPart, CountStore
from headscan.text.counts.tokens import TokenStore

__all__ = ["count_spark", "csr_of", "gram_batches"]

_CHUNK = 1 << 22


def count_spark(
    held: TokenStore, keys: Keys, store: CountStore, *, master: str, min_count: int, progress: Progress | None
) -> None:
    """Group by all token columns on the cluster `master` (spark://host:port, or local[2] for threads of this process).

    Positions are written as Parquet under the store's folder, which all workers must see (a shared file system); each
    worker groups its share, shuffles, and writes sorted Parquet back. Raises `BadInput` if the extra is not
    installed, no folder is given, or no master answers within ten seconds.
    """
    if store.work is None:
        raise BadInput('The engine "spark" needs a folder that every worker sees.')
    check_master(master)
    if not store.needs(0):
        return
    work = (store.work / "spark").resolve()
    shutil.rmtree(work, ignore_errors=True)
    (work / "grams").mkdir(parents=True)
    for number, batch in enumerate(gram_batches(held, keys)):
        pq.write_table(pa.Table.from_batches([batch]), work / "grams" / f"{number:06d}.parquet")
        if progress is not None:
            progress("writing", min((number + 1) * _CHUNK, len(held.tokens)), len(held.tokens), "tokens")
    with spark_session(master) as session:
        _group(session, work, keys, min_count)
    answer = pq.read_table(work / "counted")
    answer = answer.sort_by([(f"t{place}", "ascending") for place in range(keys.length)])
    store.add(0, csr_of(answer, keys.order))


def gram_batches(held: TokenStore, keys: Keys) -> Iterator[pa.RecordBatch]:
    """The positions of a corpus as rows of `order + 1` token columns t0, t1, ..., in chunks of four million."""
    names = [f"t{place}" for place in range(keys.length)]
    total = len(held.tokens) - keys.order
    for first in range(0, total, _CHUNK):
        last = min(first + _CHUNK, total)
        part = np.asarray(held.tokens[first : last + keys.order]).astype(np.int32)
        valid = held.positions(first, last, keys.order)
        columns = [part[place : place + last - first] for place in range(keys.length)]
        yield pa.RecordBatch.from_arrays([pa.array(c if valid is None else c[valid]) for c in columns], names=names)


def csr_of(table: pa.Table, order: int) -> CountPart:
    """A part from a table of token columns in lexicographic order and counts n."""
    columns = [table[f"t{place}"].to_numpy().astype(np.int32, copy=False) for place in range(order + 1)]
    contexts = np.stack(columns[:order]).T
    bounds = run_bounds(contexts)
    return CountPart(contexts[bounds[:-1]], bounds, columns[order], table["n"].to_numpy().astype(np.int64))


def _group(session: Any, work: Path, keys: Keys, min_count: int) -> None:
    names = [f"t{place}" for place in range(keys.length)]
    frame = session.read.parquet(str(work / "grams")).groupBy(*names).count().withColumnRenamed("count", "n")
    if min_count > 1:
        from pyspark.sql import functions

        context = names[: keys.order]
        seen = frame.groupBy(*context).agg(functions.sum("n").alias("seen")).where(f"seen >= {min_count}")
        frame = frame.join(seen.drop("seen"), context)
    frame.write.mode("overwrite").parquet(str(work / "counted"))
