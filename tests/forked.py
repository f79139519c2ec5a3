"""A process of its own without the seconds that importing takes: a fork of this one."""

import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

__all__ = ["exit_status", "fork", "start", "status_of", "together"]


def fork(work: Callable[[], object], said: Path) -> int:
    """Do `work` in a fork, with what it says in a file; the process's id. It takes signals as a fresh Python does and ends with
    the status of a SystemExit, else 0, or 1 where it fails.
    """
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        file = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for number in (1, 2):
            os.dup2(file, number)
        sys.stdout, sys.stderr = open(1, "w"), open(2, "w")  # noqa: SIM115 - they are open for as long as it lives
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
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
        finally:
            os._exit(status)


def exit_status(leaving: SystemExit) -> int:
    """The status that a process ends with: no code is 0, and a sentence 1."""
    return leaving.code if isinstance(leaving.code, int) else 0 if leaving.code is None else 1


def status_of(process: int) -> int:
    """Wait for a fork to end: its exit status, negative for the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def together(work: Callable[[], object], processes: int, said: Path) -> list[int]:
    """`work` in so many forks that find in their environment what `torchrun` tells its processes; their exit statuses."""
    return [status_of(child) for child in start(work, processes, said)]


def start(work: Callable[[], object], processes: int, said: Path) -> list[int]:
    """The same, begun: their numbers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": processes, "LOCAL_WORLD_SIZE": processes, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}

    def one(rank: int) -> None:
        told = shared | {"RANK": rank, "LOCAL_RANK": rank}
        os.environ.update({name: str(value) for name, value in told.items()})
        work()

    return [fork(partial(one, rank), said.with_name(f"{said.name}.{rank}")) for rank in range(processes)]
