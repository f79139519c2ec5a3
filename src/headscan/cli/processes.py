"""The processes of one run under `torchrun`: they join, and one that dies ends the others."""

import errno
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

# Seconds in which all processes of a run begin. torch's store may wait for twice as long, and a
# minute is promised.
JOIN = 29.0
DIED = "Another process of this run has died. Continue with the same command and --resume."


def _connect(store: Any, rank: int, count: int, links: list[socket.socket]) -> None:
    """Connect process 0 with every other one; the connections are appended to `links`."""
    limit = time.monotonic() + JOIN
    with socket.create_server(("", 0)) as server:
        server.settimeout(JOIN)
        store.set(f"{rank}", str(server.getsockname()[1]))
        while not store.check([f"{peer}" for peer in range(count)]):
            if time.monotonic() > limit:
                raise OSError(
                    errno.ECONNRESET,
                    f"Another process of this run has died: it did not join in {JOIN:.0f} seconds.",
                )
            time.sleep(0.05)

        address = (os.environ.get("MASTER_ADDR", "localhost"), int(store.get("0")))
        with suppress(OSError):  # where no connection can be made, nobody watches
            for _ in range(1 if rank else count - 1):
                link = socket.create_connection(address, JOIN) if rank else server.accept()[0]
                link.settimeout(None)
                links.append(link)


@contextmanager
def _watched(store: Any, rank: int, count: int) -> Iterator[threading.Event]:
    """End this process as SIGTERM does where another one dies.

    The system closes the connections of a process that dies. A process that ends in order says so
    first. Yields the event that is set when another process has died.
    """
    links = list[socket.socket]()
    died = threading.Event()
    leaving = threading.Event()

    def listen(link: socket.socket) -> None:
        farewell = b""
        with suppress(OSError):
            farewell = link.recv(1)
        if not farewell and not leaving.is_set():
            died.set()
            os.kill(os.getpid(), signal.SIGTERM)

    _connect(store, rank, count, links)
    for link in links:
        threading.Thread(target=listen, args=(link,), daemon=True).start()
    try:
        yield died
        for link in links:
            with suppress(OSError):
                link.sendall(b".")
    finally:
        leaving.set()
        for link in links:
            link.close()


@contextmanager
def joined(*, wanted: bool = True) -> Iterator[bool]:
    """Join the process group that `torchrun` describes, if there is one; yields whether this
    process may print. Where another process dies, this one stores its state, and raises OSError
    (ECONNRESET).
    """
    if not wanted or int(os.environ.get("WORLD_SIZE", "1")) < 2:
        yield True
        return
    import torch
    import torch.distributed as dist
    from torch.distributed.rendezvous import rendezvous

    died: Any = None
    try:
        store, rank, count = next(rendezvous("env://", timeout=timedelta(seconds=JOIN)))
        with _watched(store, rank, count) as died:
            if torch.cuda.is_available():
                torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
            dist.init_process_group(
                "nccl" if torch.cuda.is_available() else "gloo",
                store=store,
                rank=rank,
                world_size=count,
            )
            yield rank == 0
    except (KeyboardInterrupt, RuntimeError) as error:
        if isinstance(error, dist.DistError) or (
            died is not None and died.wait(1)
        ):  # what failed, or torchrun, may be faster
            raise OSError(errno.ECONNRESET, DIED) from error
        raise
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
