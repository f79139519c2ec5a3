"""Runs on several processors at once, in order; what each finds does not depend on how many there are."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context

from headscan.training.racing.plan import TournamentPlan
from headscan.training.racing.race import Ground, Job, Race, race

__all__ = ["Start", "workers"]

Start = Callable[[Sequence[Job]], list[Callable[[], Race]]]
"""Jobs to functions that wait for their races."""


@contextmanager
def workers(processes: int, plan: TournamentPlan, grounds: Mapping[str, Ground]) -> Iterator[Start]:
    """Something that starts jobs: in processes of their own, or for one process when their race is asked for."""
    if processes == 1:
        yield lambda jobs: [partial(race, job, plan, grounds[job.cell.name]) for job in jobs]
        return
    pool = ProcessPoolExecutor(processes, get_context("spawn"), _take, (plan, dict(grounds)))
    try:
        yield lambda jobs: [pool.submit(_race, job).result for job in jobs]
    except BaseException:
        stop(pool)
        raise
    pool.shutdown()


def stop(pool: ProcessPoolExecutor) -> None:
    """End a pool's processes now; left alone they would finish the runs that they have begun, for nobody."""
    running = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for process in running:
        process.terminate()


_given: list[tuple[TournamentPlan, dict[str, Ground]]] = []


def _take(plan: TournamentPlan, grounds: dict[str, Ground]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the one that waits says what is to be said
    _given[:] = [(plan, grounds)]


def _race(job: Job) -> Race:
    plan, grounds = _given[0]
    return race(job, plan, grounds[job.cell.name])
