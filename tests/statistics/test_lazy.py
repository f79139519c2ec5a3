"""Attributes worked out when they are asked for do not make threads wait for each other."""

import threading
from concurrent.futures import ThreadPoolExecutor

import torch
from threadpoolctl import threadpool_info

from headscan.statistics.accumulator import lazy
from headscan.statistics.cloud import side_by_side


def test_two_objects_are_worked_out_at_once() -> None:
    both = threading.Barrier(2)

    class Slow:
        @lazy
        def value(self) -> int:
            return both.wait(timeout=10)  # returns only when the other one is here, too

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(lambda one: one.value, [Slow(), Slow()])) == [0, 1]


def test_side_by_side_holds_all_threads_down_and_gives_them_back() -> None:
    def threads(_: int) -> tuple[int, ...]:
        pools = [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
        return (torch.get_num_threads(), *pools)

    before = threads(0)
    own = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        assert {count for found in side_by_side(threads, [0, 1, 2], 8.0) for count in found} == {1}
    finally:
        torch.set_num_threads(own)
    assert threads(0) == before
