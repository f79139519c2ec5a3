"""Full prefixes: the context of a token is everything before it in its document, of whatever length."""

from __future__ import annotations

import numpy as np

from headscan.run.errors import BadInput
from headscan.text.counts.store import ContextCounts, CountTask
from headscan.text.counts.tokens import TokenStore

__all__ = ["count_prefixes", "prefix_tokens"]


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
