"""Work on many matrices at once: one thread each, rather than all threads on each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Self, TypeVar

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
    threads, workers = torch.get_num_threads(), _workers(len(items), size)
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


class Abreast:
    """The same for work that comes piece by piece and gives nothing back: it waits until there is some for each thread.

    Whichever call had the work done raises its error. On an accelerator, which has threads of its own, nothing waits.

    >>> done = []
    >>> with Abreast(4, 8) as abreast:
    ...     for number in range(4):
    ...         abreast.add(lambda number=number: done.append(number))
    ...     abreast.settle()
    >>> sorted(done)
    [0, 1, 2, 3]
    """

    def __init__(self, items: int, size: float, device: torch.device | str = "cpu"):
        self.workers = _workers(items, size) if torch.device(device).type == "cpu" else 1
        self._pool = ThreadPoolExecutor(self.workers)
        self._waiting: list[Callable[[], None]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._waiting = []
        self._pool.shutdown()

    def add(self, work: Callable[[], None]) -> None:
        self._waiting.append(work)
        if len(self._waiting) == self.workers:
            self.settle()

    def settle(self) -> None:
        """Have all that waits done."""
        waiting, self._waiting = self._waiting, []
        if len(waiting) < 2:  # one alone has all threads
            for work in waiting:
                work()
            return
        threads = torch.get_num_threads()
        try:
            torch.set_num_threads(1)
            inference = torch.is_inference_mode_enabled()
            futures = [self._pool.submit(_single, work, inference) for work in waiting]
            wait(futures)
        finally:
            torch.set_num_threads(threads)
        for future in futures:
            future.result()


def _single(work: Callable[[], None], inference: bool) -> None:
    torch.set_num_threads(1)  # of this thread; but MKL's are of all, so they are given back when all work is done
    with torch.inference_mode(inference):  # as in the thread that gave the work
        work()


def _workers(items: int, size: float) -> int:
    return max(1, min(torch.get_num_threads(), items, int(ROOM // max(size, 1.0))))
