"""The same contexts counted in groups of documents, for error bars over documents."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from headscan.text.counts.keys import Keys
from headscan.text.counts.store import ContextCounts
from headscan.text.counts.tokens import TokenStore

__all__ = ["grouped_counts"]


def grouped_counts(held: TokenStore, counts: ContextCounts, groups: int) -> list[sp.csr_matrix]:
    """Count matrices [m, V] of `groups` stretches of the corpus over the contexts of `counts`; they sum to its matrix.

    Stretches are runs of whole documents of about equal length, or, where there are fewer documents than groups, runs of
    positions (a block bootstrap: neighbours stay together). Contexts that `counts` left out are left out. Memory: one
    key a token.
    """
    keys = Keys(counts.order, counts.vocabulary)
    order = counts.order
    total = len(held.tokens) - order
    cuts = np.linspace(0, total, groups + 1).astype(np.int64)
    if len(held.starts) >= groups:
        ends = np.append(held.starts, len(held.tokens))
        cuts = np.unique(ends[np.searchsorted(ends, cuts)])
        cuts[-1] = max(int(cuts[-1]), total)
    table = _rows(counts.contexts)
    matrices = []
    for first, last in pairwise(cuts.tolist()):
        last = min(last, total)
        if last <= first:
            continue
        packed = keys.pack(np.asarray(held.tokens[first : last + order]))
        valid = held.positions(first, last, order)
        found, times = keys.group(packed if valid is None else packed[valid])
        contexts, bounds, following = keys.csr(found)
        wanted = _rows(contexts)
        at = np.minimum(np.searchsorted(table, wanted), len(table) - 1)
        row = np.where(table[at] == wanted, at, -1)
        of_entry = np.repeat(row, np.diff(bounds))
        kept = of_entry >= 0
        shape = (len(table), counts.vocabulary)
        entries = (times[kept].astype(np.float64), (of_entry[kept], following[kept]))
        matrices.append(sp.csr_matrix(entries, shape=shape))
    return matrices


def _rows(contexts: npt.NDArray[np.int32]) -> npt.NDArray[np.void]:
    """Each row as one byte string whose order is the lexicographic order of the tokens."""
    big_endian = np.ascontiguousarray(contexts.astype(">i4"))
    return big_endian.view(np.dtype((np.void, 4 * contexts.shape[1]))).ravel()
