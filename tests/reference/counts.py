"""Counting as one would on paper: a dictionary of (context, next token)."""

from collections import Counter


def dictionary(documents, order: int) -> dict:
    """{(context tuple, next token): times} over every position whose context lies inside its
    document.
    """
    entries: Counter = Counter()
    for document in documents:
        tokens = [int(token) for token in document]
        for i in range(len(tokens) - order):
            entries[tuple(tokens[i : i + order]), tokens[i + order]] += 1
    return dict(entries)


def as_dictionary(counts) -> dict:
    """Return the same form of a `ContextCounts`."""
    entries = {}
    for row in range(len(counts.indptr) - 1):
        context = tuple(counts.contexts[row].tolist())
        for entry in range(counts.indptr[row], counts.indptr[row + 1]):
            entries[context, int(counts.indices[entry])] = int(counts.counts[entry])
    return entries
