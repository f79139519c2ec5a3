"""Work on many matrices at once: one thread for each, rather than all threads on each."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, Self, TypeVar, overload

import torch
from threadpoolctl import threadpool_limits

S = TypeVar("S")
T = TypeVar("T")
ROOM = 2**30
"""Bytes that all pieces of work at once may hold."""


def side_by_side(
    work: Callable[[S], T], items: Sequence[S], size: float, device: torch.device | str = "cpu"
) -> Iterator[T]:
    """Yield `work` of each item, in order; several run at once, each on one thread.

    There are as many workers as torch has threads. `size` is the bytes that one item needs: all at
    once take no more than 1 GiB, else there is one at a time, on all threads. `device` is where
    `work` computes: on any device but the CPU there is one at a time, because torch loads the
    libraries of a device at their first call, and fails where two threads make that call at once.
    A device does not gain from threads.

    The decompositions of a symmetric matrix gain little from more threads than one, and products of
    threads that wait for one another gain nothing. numpy's threads are limited too: on a busy
    machine of two cores two of them waited for each other and took ten times as long.

    >>> list(side_by_side(abs, [-1, 2], 8))
    [1, 2]
    """
    threads = torch.get_num_threads()
    most = threads if torch.device(device).type == "cpu" else 1
    affordable = int(ROOM // max(size, 1.0))
    workers = max(1, min(most, len(items), affordable))
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


class lazy(Generic[T]):
    """A property that is computed once, like `functools.cached_property` from Python 3.12 on.

    Before Python 3.12, `cached_property` had one lock for a class, so that no two objects could
    compute at once.
    """

    def __init__(self, compute: Callable[[Any], T]):
        self.compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, _owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> Self | T:
        if instance is None:
            return self
        value = self.compute(instance)
        vars(instance)[self.name] = value
        return value
