"""The engine on one machine: sort keys in chunks, merge equals, spread the rest over key ranges, finish range by range."""

from __future__ import annotations

import hashlib
import json
import os
from itertools import pairwise
from pathlib import Path

import numpy as np

from headscan.run import BadInput, Progress, write_atomic
from headscan.text.counts.store import ContextCounts, CountPart, CountStore, CountTask, Int64, Keys, Packed, occurrences
from headscan.text.counts.tokens import TokenStore

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


# ---- Full prefixes: the context of a token is everything before it in its document, of whatever length.


def count_prefixes(held: TokenStore, *, longest: int | None = None, min_count: int = 1) -> ContextCounts:
    """Count the next tokens of every prefix of every document (the nodes of their trie), up to `longest` tokens of
    prefix.

    The first prefix is the empty one (row 0). Prefixes grow level by level: two documents share a prefix of t + 1
    tokens if they share one of t tokens and the next token, so each level is one sort of (prefix, token) pairs of the
    documents still alive; nothing is hashed. Memory: the tokens, and a number a document. `min_count` stops following
    prefixes seen fewer times. Contexts come out by length, then in lexicographic order of (parent, token). Raises
    `BadInput` for no tokens.

    >>> from headscan.text.counts import store_tokens
    >>> held = store_tokens([np.array([0, 1]), np.array([0, 2])], 3, None)
    >>> counts = count_prefixes(held)
    >>> counts.contexts.tolist(), counts.indptr.tolist(), counts.indices.tolist(), counts.counts.tolist()
    ([[-1, -1], [0, 0]], [0, 1, 3], [0, 1, 2], [2, 1, 1])
    >>> prefix_tokens(counts, 1)
    [0]
    """
    if not len(held.tokens):
        raise BadInput("The text has no tokens.")
    lengths = np.diff(held.starts, append=len(held.tokens))
    alive, node = np.arange(len(held.starts)), np.zeros(len(held.starts), dtype=np.int64)
    contexts = [np.array([[-1, -1]], dtype=np.int32)]
    sizes, indices, counts = [], [], []
    found, level_size, depth = 1, 1, 0
    while len(alive) and (longest is None or depth <= longest):
        base = found - level_size  # row of the first node of this level
        token = held.tokens[held.starts[alive] + depth].astype(np.int64)
        key = (node - base) * held.vocabulary + token
        pairs, inverse, times = np.unique(key, return_inverse=True, return_counts=True)
        sizes.append(np.bincount(pairs // held.vocabulary, minlength=level_size))
        indices.append((pairs % held.vocabulary).astype(np.int32))
        counts.append(times)
        # A child prefix is a context only if some document goes on after it.
        goes_on = lengths[alive] > depth + 1
        onward = np.bincount(inverse[goes_on], minlength=len(pairs))
        kept = onward >= max(min_count, 1)
        row = np.full(len(pairs), -1, dtype=np.int64)
        row[kept] = found + np.arange(int(kept.sum()))
        follow = goes_on & kept[inverse]
        if longest is not None and depth + 1 > longest:
            break
        children = np.stack([base + pairs[kept] // held.vocabulary, pairs[kept] % held.vocabulary], 1)
        contexts.append(children.astype(np.int32))
        alive, node = alive[follow], row[inverse[follow]]
        level_size, depth = int(kept.sum()), depth + 1
        found += level_size
    rows = np.concatenate(contexts)
    size = np.concatenate(sizes)
    return ContextCounts(
        rows[: len(size)], np.append(0, np.cumsum(size)), np.concatenate(indices), np.concatenate(counts),
        CountTask(order=0, vocabulary=held.vocabulary, tokens=len(held.tokens), documents=len(held.starts)),
    )  # fmt: skip


def prefix_tokens(counts: ContextCounts, row: int) -> list[int]:
    """The tokens of the prefix at a row, first to last, by climbing to the root."""
    tokens = []
    while row > 0:
        row, token = (int(value) for value in counts.contexts[row])
        tokens.append(token)
    return tokens[::-1]
