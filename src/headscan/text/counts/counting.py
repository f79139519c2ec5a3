"""From documents to counts: tokens are stored, then an engine counts them."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headscan.run import BadInput, Progress
from headscan.text.counts.keys import Keys
from headscan.text.counts.sort import count_sorted
from headscan.text.counts.store import ContextCounts, CountStore, CountTask
from headscan.text.counts.tokens import TokenStore, store_text, store_tokens
from headscan.text.settings import Counting, Reading, parse_bytes
from headscan.text.source import TextLike

__all__ = ["count", "count_text", "count_tokens"]


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
        from headscan.text.counts.spark import count_spark

        assert settings.master is not None
        count_spark(held, keys, store, master=settings.master, min_count=settings.min_count, progress=progress)
    result = store.finish()
    if not len(result.indptr) > 1:
        raise BadInput(f"No context was seen at least {settings.min_count} times.")
    return result
