"""Races in several processes at once; their numbers do not depend on how many there are."""

import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context

from headscan_lab.tournament.plan import TournamentPlan
from headscan_lab.tournament.race import Ground, Job, Race, race

Start = Callable[[Sequence[Job]], list[Callable[[], Race]]]
"""Starts jobs, and returns for each a function that waits for its race."""


@contextmanager
def workers(processes: int, plan: TournamentPlan, ground: Ground) -> Iterator[Start]:
    """Give a function that starts jobs.

    Jobs run in processes of their own. With one process, a job runs when its race is waited for.
    """
    if processes == 1:

        def start_here(jobs: Sequence[Job]) -> list[Callable[[], Race]]:
            return [partial(race, job, plan, ground) for job in jobs]

        yield start_here
        return

    pool = ProcessPoolExecutor(processes, get_context("spawn"), _set_up, (plan, ground))

    def start_in_pool(jobs: Sequence[Job]) -> list[Callable[[], Race]]:
        return [pool.submit(_race_in_worker, job).result for job in jobs]

    try:
        yield start_in_pool
    except BaseException:
        stop(pool)
        raise
    pool.shutdown()


def stop(pool: ProcessPoolExecutor) -> None:
    """End a pool's processes now; otherwise they would finish the runs that they have begun."""
    processes = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        # A forked worker inherits handlers, so that it may survive SIGTERM.
        process.kill()


_worker_setup: list[tuple[TournamentPlan, Ground]] = []
"""The plan and the windows of a worker process, set when it starts."""


def _set_up(plan: TournamentPlan, ground: Ground) -> None:
    # Ctrl-C reaches all processes; only the one that waits shall report it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _worker_setup[:] = [(plan, ground)]


def _race_in_worker(job: Job) -> Race:
    plan, ground = _worker_setup[0]
    return race(job, plan, ground)
