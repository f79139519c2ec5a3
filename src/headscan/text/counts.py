"""Counting: from a corpus of any size to its distinct contexts of K tokens and how often each token followed each.

Positions count whose whole context lies inside their document. Counting is exact: keys are the tokens themselves,
packed into integers, never hashes. It is also out of core: under a memory limit the keys are sorted in chunks, equal
ones merged at once, and the rest spread over key ranges on disk, each of which fits in memory again (an external
sample sort). Sorted keys are the CSR arrays already; the embedded databases hash first and must sort afterwards,
which is why this measured faster than both DuckDB and Polars
(benchmarks/counting_is_no_slower_than_duckdb_and_polars.py).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from headscan.errors import BadInput
from headscan.text.counts_keys import Keys
from headscan.text.counts_sort import count_sorted
from headscan.text.counts_spool import Spool, spool, spool_text
from headscan.text.counts_store import ContextCounts, CountStore
from headscan.text.documents import Source

__all__ = ["ContextCounts", "count", "count_spool", "count_text", "parse_bytes"]

Progress = Callable[[str, int, int | None], None]
_ENGINES = ("sort", "duckdb", "spark")


def parse_bytes(size: str | int) -> int:
    """Bytes from a number or a word such as "512MiB", "4GiB", "2GB".

    >>> parse_bytes("4GiB"), parse_bytes("10 MB"), parse_bytes(4096)
    (4294967296, 10000000, 4096)
    """
    if isinstance(size, int):
        return size
    units = {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40, "KB": 10**3, "MB": 10**6, "GB": 10**9, "B": 1}
    word = size.strip().upper()
    for unit, factor in units.items():
        if word.endswith(unit):
            word, scale = word[: -len(unit)], factor
            break
    else:
        scale = 1
    try:
        return int(float(word) * scale)
    except ValueError:
        raise BadInput(f'"{size}" is no amount of memory; write for example 512MiB or 4GiB.') from None


def count(
    documents: Iterable[np.ndarray],
    order: int,
    vocabulary: int,
    *,
    folder: str | Path | None = None,
    memory: str | int = "4GiB",
    min_count: int = 1,
    engine: str = "sort",
    master: str | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> ContextCounts:
    """Count the next tokens of every context of `order` tokens in documents of token ids (each int [n], 0 <= id <
    vocabulary).

    `folder` keeps the result and whatever has to leave memory; without it all stays in memory. `memory` limits what the
    count holds at once (the sort engine keeps within it, and hands it on to DuckDB as its own limit). Contexts seen
    fewer than `min_count` times are left out. `engine`: "sort" (built in), "duckdb" (extra `duckdb`) or "spark"
    (extra `spark`, with the URL of a `master`; the folder must be one that all workers see). `resume` continues a
    count that was killed: tokens spooled and key ranges finished are kept. `progress` is called with (stage, done,
    total).

    Raises `BadInput` when no document is longer than `order`, the vocabulary is empty, or an id lies outside it.

    >>> counts = count([np.array([0, 1, 2, 0, 1, 0])], order=2, vocabulary=3)
    >>> counts.contexts.tolist(), counts.indices.tolist(), counts.counts.tolist()
    ([[0, 1], [1, 2], [2, 0]], [0, 2, 0, 1], [1, 1, 1, 1])
    """
    _check(order, vocabulary, engine, min_count)
    held = spool(documents, vocabulary, None if folder is None else Path(folder), resume=resume, progress=progress)
    found = count_spool(
        held, order, folder=folder, memory=parse_bytes(memory), min_count=min_count, engine=engine, master=master,
        resume=resume, progress=progress,
    )  # fmt: skip
    if folder is not None:
        shutil.rmtree(Path(folder) / "work", ignore_errors=True)
    return found


def count_text(
    source: Source,
    tokenizer: Any,
    order: int,
    *,
    vocabulary: int | None = None,
    documents: str = "whole",
    field: str = "text",
    max_tokens: int | None = None,
    folder: str | Path | None = None,
    memory: str | int = "4GiB",
    min_count: int = 1,
    engine: str = "sort",
    master: str | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> ContextCounts:
    """Count straight from a text: `headscan.text.documents` reads it, `tokenizer` cuts it, `count` does the rest.

    `vocabulary` defaults to the tokenizer's length; `max_tokens` stops reading after so many tokens.
    """
    size = vocabulary if vocabulary is not None else len(tokenizer)
    _check(order, size, engine, min_count)
    place = None if folder is None else Path(folder)
    held = spool_text(
        source, tokenizer, size, place, documents=documents, field=field, max_tokens=max_tokens, resume=resume,
        progress=progress,
    )  # fmt: skip
    found = count_spool(
        held, order, folder=folder, memory=parse_bytes(memory), min_count=min_count, engine=engine, master=master,
        resume=resume, progress=progress,
    )  # fmt: skip
    if folder is not None:
        shutil.rmtree(Path(folder) / "work", ignore_errors=True)
    return found


def _check(order: int, vocabulary: int, engine: str, min_count: int) -> None:
    if order < 1:
        raise BadInput(f"A context has at least one token, not {order}.")
    if vocabulary < 1:
        raise BadInput("The vocabulary is empty.")
    if engine not in _ENGINES:
        raise BadInput(f'There is no counting engine "{engine}"; there are {", ".join(_ENGINES)}.')
    if min_count < 1:
        raise BadInput(f"The least count of a context is at least 1, not {min_count}.")


def count_spool(
    held: Spool,
    order: int,
    *,
    folder: str | Path | None = None,
    memory: int = 4 << 30,
    min_count: int = 1,
    engine: str = "sort",
    master: str | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> ContextCounts:
    """What `count` does once the tokens are spooled; see there."""
    _check(order, held.vocabulary, engine, min_count)
    if not len(held.tokens):
        raise BadInput("The text has no tokens.")
    if held.longest <= order:
        raise BadInput(
            f"No document is longer than the order {order}: the longest of {len(held.starts)} "
            f"has {held.longest} tokens, and a context of {order} needs one more after it."
        )
    settings = {
        "order": order, "vocabulary": held.vocabulary, "min_count": min_count, "tokens": len(held.tokens),
        "documents": len(held.starts), "spool": held.fingerprint, "engine": engine,
    }  # fmt: skip
    store = CountStore(None if folder is None else Path(folder), settings, resume=resume)
    if store.finished:
        return store.result()
    keys = Keys(order, held.vocabulary)
    if engine == "sort":
        count_sorted(held, keys, store, memory=memory, min_count=min_count, progress=progress)
    elif engine == "duckdb":
        from headscan.text.counts_duckdb import count_duckdb

        count_duckdb(held, keys, store, memory=memory, min_count=min_count, progress=progress)
    else:
        from headscan.text.counts_spark import count_spark

        count_spark(held, keys, store, master=master, min_count=min_count, progress=progress)
    result = store.finish()
    if not len(result.indptr) > 1:
        raise BadInput(f"No context was seen at least {min_count} times.")
    return result
