"""From documents to counts: tokens are stored, then an engine counts them."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from headscan.run import BadInput, Progress
from headscan.run.spark import check_master, spark_session
from headscan.text.counts.sort import count_sorted
from headscan.text.counts.store import ContextCounts, CountPart, CountStore, CountTask, Keys, run_bounds
from headscan.text.counts.tokens import TokenStore, store_text, store_tokens
from headscan.text.source import Counting, Reading, TextLike, parse_bytes


def count(
    documents: Iterable[npt.NDArray[np.integer[Any]]],
    vocabulary: int,
    settings: Counting,
    *,
    folder: str | Path | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> ContextCounts:
    """Count the next tokens of every context of `settings.order` tokens in documents of token ids.

    Args:
        documents: arrays int [n] of ids, 0 <= id < vocabulary.
        vocabulary: number of ids there are.
        settings: order, least count, engine, and the memory that the count may hold at once.
        folder: keeps the result and whatever has to leave memory; without it all stays in memory. For Spark it must be
            one that all workers see.
        resume: continue a count that was killed: tokens stored and key ranges finished are kept, if the documents are
            the same ones.
        progress: told of the stages.

    Raises:
        BadInput: no document is longer than the order, the vocabulary is empty, an id lies outside it; the count to
            resume was another one, or what was stored of it is damaged.

    >>> counts = count([np.array([0, 1, 2, 0, 1, 0])], 3, Counting(order=2))
    >>> counts.contexts.tolist(), counts.indices.tolist(), counts.counts.tolist()
    ([[0, 1], [1, 2], [2, 0]], [0, 2, 0, 1], [1, 1, 1, 1])
    """
    place = None if folder is None else Path(folder)
    held = store_tokens(documents, vocabulary, _work(place), resume=resume, progress=progress)
    return _counted(held, settings, place, resume, progress)


def count_text(
    source: TextLike,
    tokenizer: Any,
    settings: Counting,
    reading: Reading | None = None,
    *,
    vocabulary: int | None = None,
    folder: str | Path | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> ContextCounts:
    """Count straight from a text: `headscan.text.documents` reads it, the tokenizer cuts it, `count` does the rest.

    `vocabulary` defaults to the tokenizer's length.
    """
    place = None if folder is None else Path(folder)
    held, _ = store_text(
        source, tokenizer, reading or Reading(), _work(place), vocabulary=vocabulary, resume=resume, progress=progress
    )
    return _counted(held, settings, place, resume, progress)


def _counted(
    held: TokenStore, settings: Counting, folder: Path | None, resume: bool, progress: Progress | None
) -> ContextCounts:
    found = count_tokens(held, settings, folder=folder, resume=resume, progress=progress)
    if (work := _work(folder)) is not None:
        shutil.rmtree(work, ignore_errors=True)
    return found


def _work(folder: Path | None) -> Path | None:
    return None if folder is None else folder / "work"


def count_tokens(
    held: TokenStore,
    settings: Counting,
    *,
    folder: Path | None = None,
    work: Path | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> ContextCounts:
    """What `count` does once the tokens are stored; see there. What is unfinished is kept in `work` (folder/work)."""
    if not len(held.tokens):
        raise BadInput("The text has no tokens.")
    if held.longest <= settings.order:
        raise BadInput(
            f"No document is longer than the order {settings.order}: the longest of {len(held.starts)} "
            f"has {held.longest} tokens, and a context of {settings.order} needs one more after it."
        )
    task = CountTask(
        order=settings.order, vocabulary=held.vocabulary, min_count=settings.min_count, tokens=len(held.tokens),
        documents=len(held.starts), sha256=held.sha256, engine=settings.engine,
    )  # fmt: skip
    store = CountStore(folder, task, work=work, resume=resume)
    if store.finished:
        return store.result()
    keys = Keys(settings.order, held.vocabulary)
    if settings.engine == "sort":
        memory = parse_bytes(settings.memory)
        count_sorted(held, keys, store, memory=memory, min_count=settings.min_count, progress=progress)
    else:
        assert settings.master is not None
        count_spark(held, keys, store, master=settings.master, min_count=settings.min_count, progress=progress)
    result = store.finish()
    if not len(result.indptr) > 1:
        raise BadInput(f"No context was seen at least {settings.min_count} times.")
    return result


# ---- The same count on a Spark cluster, for a corpus that outgrows one machine (extra `spark`; Java 17 or 21).

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
