"""The built-in engine: sort keys in chunks, merge equals, spread the rest over key ranges, finish range by range."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from headscan.text.counts_keys import Keys
from headscan.text.counts_spool import Spool
from headscan.text.counts_store import CountStore

__all__ = ["count_sorted"]

Progress = Callable[[str, int, int | None], None]
# What the group step holds of each key at its fullest: the keys, their sorted copy, flags, starts, distinct keys,
# counts.
_COPIES = 6


def count_sorted(
    spool: Spool, keys: Keys, store: CountStore, *, memory: int, min_count: int, progress: Progress | None
) -> None:
    """Count into `store`, holding at most about `memory` bytes beside the memory-mapped tokens."""
    total = max(len(spool.tokens) - keys.order, 0)
    width = 8 * keys.words
    fits = max(1 << 14, memory // (_COPIES * width + 8 * keys.order))
    if total <= fits or store.folder is None:
        if store.needs(0):
            found, counts = keys.group(_chunk(spool, keys, 0, total))
            store.add(0, *_pruned(*keys.csr(found), counts, min_count))
        return
    ranges = -(-total // fits) + 1
    work = store.folder / "work" / "ranges"
    splitters = _splitters(spool, keys, total, ranges)
    if not (work / "done").exists():
        _spread(spool, keys, splitters, work, total, fits // 2, progress)
    for number in range(len(splitters) + 1):
        if store.needs(number):
            found, counts = _read(work, number, keys)
            found, counts = keys.group(found, counts)
            store.add(number, *_pruned(*keys.csr(found), counts, min_count))
            _paths(work, number)[0].unlink(missing_ok=True)
            _paths(work, number)[1].unlink(missing_ok=True)
        if progress is not None:
            progress("merging", number + 1, len(splitters) + 1)


def _chunk(spool: Spool, keys: Keys, first: int, last: int) -> np.ndarray:
    packed = keys.pack(np.asarray(spool.tokens[first : last + keys.order]))
    valid = spool.positions(first, last, keys.order)
    return packed if valid is None else packed[valid]


def _splitters(spool: Spool, keys: Keys, total: int, ranges: int) -> np.ndarray:
    """Keys that cut the corpus into ranges of about equal size, from a sample spread evenly over it.

    A range begins at a whole context (the next token is left out of the cut), so that no context falls into two.
    """
    sample = []
    stretch = 1 << 12
    for first in np.linspace(0, max(total - stretch, 0), 64).astype(np.int64):
        sample.append(keys.first_word(_chunk(spool, keys, int(first), min(int(first) + stretch, total))))
    ordered = np.sort(np.concatenate(sample))
    cuts = ordered[np.linspace(0, len(ordered) - 1, ranges + 1).astype(np.int64)[1:-1]]
    return np.unique(cuts)


def _paths(work: Path, number: int) -> tuple[Path, Path]:
    return work / f"{number:05d}.keys", work / f"{number:05d}.counts"


def _spread(
    spool: Spool, keys: Keys, splitters: np.ndarray, work: Path, total: int, chunk: int, progress: Progress | None
) -> None:
    """First pass: every chunk sorted and merged, its pieces appended to the ranges. Begins anew if it was cut short."""
    work.mkdir(parents=True, exist_ok=True)
    for path in work.iterdir():
        path.unlink()
    files = [tuple(path.open("ab") for path in _paths(work, number)) for number in range(len(splitters) + 1)]
    try:
        for first in range(0, total, chunk):
            last = min(first + chunk, total)
            found, counts = keys.group(_chunk(spool, keys, first, last))
            cuts = keys.split(found, splitters)
            for (of_keys, of_counts), begin, end in zip(files, cuts[:-1], cuts[1:], strict=True):
                found[begin:end].tofile(of_keys)
                counts[begin:end].tofile(of_counts)
            if progress is not None:
                progress("counting", last, total)
    finally:
        for pair in files:
            for file in pair:
                file.close()
    (work / "done").touch()


def _read(work: Path, number: int, keys: Keys) -> tuple[np.ndarray, np.ndarray]:
    of_keys, of_counts = _paths(work, number)
    found = np.fromfile(of_keys, dtype=np.uint64)
    return (found if keys.narrow else found.reshape(-1, keys.words)), np.fromfile(of_counts, dtype=np.int64)


def _pruned(
    contexts: np.ndarray, indptr: np.ndarray, following: np.ndarray, counts: np.ndarray, min_count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Leave out contexts seen fewer than `min_count` times."""
    if min_count <= 1 or not len(contexts):
        return contexts, indptr, following, counts
    seen = np.add.reduceat(counts, indptr[:-1])
    kept = seen >= min_count
    sizes = np.diff(indptr)
    entries = np.repeat(kept, sizes)
    return contexts[kept], np.append(0, np.cumsum(sizes[kept])), following[entries], counts[entries]
