"""A process of its own without the seconds that importing takes: a fork of this one.

No fork outlives the process that made it, and none is waited for without a limit: one that hangs is
ended, and the stacks of its threads stand in what it said.
"""

import ctypes
import faulthandler
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

__all__ = ["exit_status", "fork", "grouped", "start", "status_of", "together"]

LIMIT = 200.0  # seconds that a fork may take; none takes ten on a machine with nothing else to do
GRACE = 5.0  # more for the others, once one has failed: they may have something to say
DIES_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl(2)


def renew_thread_pool() -> None:
    """Make torch's thread pool anew in a fork, from its only thread.

    A fork has none of its parent's threads, so torch makes a new pool at the first call that needs
    one. Where two threads make that call at once (transformers loads a model with several), the
    second finds no pool and fails with "Invalid thread pool".
    """
    if "torch" in sys.modules:
        torch = sys.modules["torch"]
        torch.set_num_threads(torch.get_num_threads())


def fork(work: Callable[[], object], printed: Path) -> int:
    """Do `work` in a fork, with what it says in a file; the process's id. It takes signals as a
    fresh Python does and ends with the status of a SystemExit, else 0, or 1 where it fails.
    """
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(DIES_WITH_PARENT, signal.SIGKILL)
        file = os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for number in (1, 2):
            os.dup2(file, number)
        sys.stdout = open(1, "w")  # noqa: SIM115 - they are open for as long as it lives
        sys.stderr = open(2, "w")  # noqa: SIM115 - they are open for as long as it lives
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        faulthandler.enable(sys.stderr)
        renew_thread_pool()
        work()
        status = 0
    except SystemExit as leaving:
        status = exit_status(leaving)
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except OSError:
            status = 120  # as Python's, where what was said cannot be written
        finally:
            os._exit(status)


def exit_status(leaving: SystemExit) -> int:
    """The status that a process ends with: no code is 0, and a sentence 1."""
    if isinstance(leaving.code, int):
        return leaving.code
    return 0 if leaving.code is None else 1


def status_of(process: int) -> int:
    """Wait for a fork to end: its exit status, negative for the signal that ended it (SIGABRT where
    it hung).
    """
    return statuses([process])[0]


def statuses(processes: Sequence[int]) -> list[int]:
    """The exit statuses of forks that need each other: where one has failed, or takes too long,
    those that run are ended.
    """
    exit_codes: dict[int, int] = {}
    limit = time.monotonic() + LIMIT
    while len(exit_codes) < len(processes):
        running = [process for process in processes if process not in exit_codes]
        waited = {process: os.waitpid(process, os.WNOHANG) for process in running}
        exit_codes |= {
            process: os.waitstatus_to_exitcode(status)
            for process, (number, status) in waited.items()
            if number
        }
        if time.monotonic() > limit:
            for process in set(running) - set(exit_codes):
                os.kill(process, signal.SIGABRT)  # the handler of faults writes the stacks
            limit = float("inf")
        elif any(exit_codes.values()):
            limit = min(limit, time.monotonic() + GRACE)
        time.sleep(0.005)
    return [exit_codes[process] for process in processes]


def grouped(work: Callable[[int], object], processes: int, folder: Path) -> None:
    """`work(rank)` in so many forks that are one gloo group of torch.distributed; what one says
    that fails is the error.

    The group is never destroyed: torch's destructor of it waits, holding the interpreter's lock,
    for a thread that may want that lock to let go of its last tensors. Where the last reference was
    that of DistributedDataParallel, that was a hang.
    """
    import torch

    def run_rank(rank: int) -> None:
        torch.set_num_threads(1)
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{folder}/group", rank=rank, world_size=processes
        )
        work(rank)
        torch.distributed.barrier()

    printed = [folder / f"said.{rank}" for rank in range(processes)]
    ended = statuses([fork(partial(run_rank, rank), printed[rank]) for rank in range(processes)])
    assert not any(ended), (ended, *(path.read_text() for path in printed))


def together(work: Callable[[], object], processes: int, printed: Path) -> list[int]:
    """`work` in so many forks that find in their environment what `torchrun` tells its processes;
    their exit statuses.
    """
    return statuses(start(work, processes, printed))


def start(work: Callable[[], object], processes: int, printed: Path) -> list[int]:
    """Start the same, and return the numbers of the processes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {
        "WORLD_SIZE": processes,
        "LOCAL_WORLD_SIZE": processes,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
    }

    def run_rank(rank: int) -> None:
        environment = shared | {"RANK": rank, "LOCAL_RANK": rank}
        os.environ.update({name: str(value) for name, value in environment.items()})
        work()

    return [
        fork(partial(run_rank, rank), printed.with_name(f"{printed.name}.{rank}"))
        for rank in range(processes)
    ]
