"""Work on many matrices at once: one thread each, rather than all threads on each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from threadpoolctl import threadpool_limits

S = TypeVar("S")
T = TypeVar("T")

ROOM = 2**30


def side_by_side(work: Callable[[S], T], items: Sequence[S], size: float) -> Iterator[T]:
    """`work` of each item, in order; several at once, each on one thread, as many as torch has threads.

    `size` is what one holds in bytes: all at once hold no more than 1 GiB, or there is one at a time, on all threads.
    The decompositions of a symmetric matrix gain little from more threads than one, and products of threads that wait for
    one another gain nothing. numpy's threads are held to as many: on a busy machine of two cores two of them waited for
    each other and took ten times as long.

    >>> list(side_by_side(abs, [-1, 2], 8))
    [1, 2]
    """
    threads = torch.get_num_threads()
    workers = max(1, min(threads, len(items), int(ROOM // max(size, 1.0))))
    with threadpool_limits(threads if workers == 1 else 1, "blas"):
        if workers == 1:
            yield from map(work, items)
            return
        pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,))
        try:
            torch.set_num_threads(1)
            yield from pool.map(work, items)
        finally:
            pool.shutdown(cancel_futures=True)
            torch.set_num_threads(threads)
