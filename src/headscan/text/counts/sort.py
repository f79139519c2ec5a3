"""The engine on one machine: sort keys in chunks, merge equals, spread the rest over key ranges, finish range by range."""

from __future__ import annotations

import hashlib
import json
import os
from itertools import pairwise
from pathlib import Path

import numpy as np

from headscan.run import BadInput, Progress, write_atomic
from headscan.text.counts.keys import Int64, Keys, Packed
from headscan.text.counts.store import CountPart, CountStore, occurrences
from headscan.text.counts.tokens import TokenStore

__all__ = ["count_sorted"]

# What the group step holds of each key at its fullest: the keys, their sorted copy, flags, starts, distinct keys,
# counts.
_COPIES = 6


def count_sorted(
    held: TokenStore, keys: Keys, store: CountStore, *, memory: int, min_count: int, progress: Progress | None
) -> None:
    """Count into `store`, holding at most about `memory` bytes beside the memory-mapped tokens."""
    total = max(len(held.tokens) - keys.order, 0)
    fits = max(1 << 14, memory // (_COPIES * 8 * keys.words + 8 * keys.order))
    if total <= fits or store.work is None:
        if store.needs(0):
            store.add(0, _part(keys, *keys.group(_chunk(held, keys, 0, total)), min_count))
        return
    splitters = _splitters(held, keys, total, -(-total // fits) + 1)
    ranges = _Ranges(store.work / "ranges", keys, splitters)
    if not ranges.spread:
        ranges.fill(held, total, fits // 2, progress)
    for number in range(len(splitters) + 1):
        if store.needs(number):
            store.add(number, _part(keys, *keys.group(*ranges.read(number)), min_count))
        ranges.drop(number)
        if progress is not None:
            progress("merging", number + 1, len(splitters) + 1, "ranges")


def _chunk(held: TokenStore, keys: Keys, first: int, last: int) -> Packed:
    packed = keys.pack(np.asarray(held.tokens[first : last + keys.order]))
    valid = held.positions(first, last, keys.order)
    return packed if valid is None else packed[valid]


def _splitters(held: TokenStore, keys: Keys, total: int, ranges: int) -> Packed:
    """Keys that cut the corpus into ranges of about equal size, from a sample spread evenly over it.

    A range begins at a whole context (the next token is left out of the cut), so that no context falls into two.
    """
    sample = []
    stretch = 1 << 12
    for first in np.linspace(0, max(total - stretch, 0), 64).astype(np.int64):
        sample.append(keys.first_word(_chunk(held, keys, int(first), min(int(first) + stretch, total))))
    ordered = np.sort(np.concatenate(sample))
    cuts = ordered[np.linspace(0, len(ordered) - 1, ranges + 1).astype(np.int64)[1:-1]]
    return np.unique(cuts)


class _Ranges:
    """Sorted runs of keys and their counts, in two files a range; the record that they are all there has their checksums."""

    def __init__(self, folder: Path, keys: Keys, splitters: Packed) -> None:
        self.folder, self.keys, self.splitters = folder, keys, splitters
        self.record = folder / "done.json"
        self.sums: dict[str, str] = {}
        if self.record.exists():
            try:
                self.sums = dict(json.loads(self.record.read_text(encoding="utf-8")))
            except (OSError, ValueError):
                raise self._damaged(self.record) from None

    @property
    def spread(self) -> bool:
        """Whether the first pass was finished."""
        return bool(self.sums)

    def fill(self, held: TokenStore, total: int, chunk: int, progress: Progress | None) -> None:
        """First pass: every chunk sorted and merged, its pieces appended to the ranges. Begins anew if it was cut short."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in self.folder.iterdir():
            path.unlink()
        paths = [path for number in range(len(self.splitters) + 1) for path in self._paths(number)]
        files, sums = [path.open("wb") for path in paths], [hashlib.sha256() for _ in paths]
        try:
            for first in range(0, total, chunk):
                last = min(first + chunk, total)
                found, counts = self.keys.group(_chunk(held, self.keys, first, last))
                cuts = self.keys.split(found, self.splitters).tolist()
                for number, (begin, end) in enumerate(pairwise(cuts)):
                    for place, array in enumerate((found, counts)):
                        data = np.ascontiguousarray(array[begin:end]).data.cast("B") if end > begin else b""
                        files[2 * number + place].write(data)
                        sums[2 * number + place].update(data)
                if progress is not None:
                    progress("counting", last, total, "tokens")
            for file in files:
                file.flush()
                os.fsync(file.fileno())
        finally:
            for file in files:
                file.close()
        self.sums = {path.name: found.hexdigest() for path, found in zip(paths, sums, strict=True)}
        write_atomic(self.record, json.dumps(self.sums))

    def read(self, number: int) -> tuple[Packed, Int64]:
        """The keys and counts of a range; BadInput where they are not what was written."""
        found = []
        for path in self._paths(number):
            array = np.fromfile(path, dtype=np.uint8) if path.exists() else np.zeros(0, dtype=np.uint8)
            if hashlib.sha256(array.data).hexdigest() != self.sums.get(path.name):
                raise self._damaged(path)
            found.append(array)
        packed, counts = found[0].view(np.uint64), found[1].view(np.int64)
        return (packed if self.keys.narrow else packed.reshape(-1, self.keys.words)), counts

    def drop(self, number: int) -> None:
        """Forget a range that is counted."""
        for path in self._paths(number):
            path.unlink(missing_ok=True)

    def _paths(self, number: int) -> tuple[Path, Path]:
        return self.folder / f"{number:05d}.keys", self.folder / f"{number:05d}.counts"

    def _damaged(self, path: Path) -> BadInput:
        return BadInput(f"What was stored of the count is damaged ({path}): start afresh without --resume.")


def _part(keys: Keys, found: Packed, counts: Int64, min_count: int) -> CountPart:
    """A range's counts, without the contexts seen fewer than `min_count` times."""
    contexts, indptr, following = keys.csr(found)
    whole = CountPart(contexts, indptr, following, counts)
    if min_count <= 1 or not len(contexts):
        return whole
    kept = occurrences(whole) >= min_count
    sizes = np.diff(indptr)
    entries = np.repeat(kept, sizes)
    return CountPart(contexts[kept], np.append(0, np.cumsum(sizes[kept])), following[entries], counts[entries])
