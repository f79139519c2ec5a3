"""A program of a stranger, such as a chat template, run with a limit of time, memory and output."""

import json
import os
import select
import signal
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from headscan.run import BadInput

SECONDS = 20.0
MEMORY = 2**30
LONGEST = 2**26
"""Bytes of the text that the program makes."""


def limited(make: Callable[[], str], what: str) -> str:
    """Return the text that a function makes in a process of its own, which ends at the limits.

    Where the system cannot copy a process (Windows), the function runs in this one.

    Args:
        what: what runs, for the sentence: "The chat template of 'gpt'".

    Raises:
        BadInput: where the function raises, or takes more time or memory than is allowed.

    >>> limited(lambda: 2 * "a", "The template")
    'aa'
    >>> limited(lambda: str(1 / 0), "The template")
    Traceback (most recent call last):
    headscan.BadInput: The template refuses the messages: division by zero.
    """
    if not hasattr(os, "fork"):
        return make()
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the copy starts no threads
        process = os.fork()
    if process == 0:
        _answer(make, writer)
    os.close(writer)
    try:
        answer = _read(reader, what)
    finally:
        os.close(reader)
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
    return _text_of(answer, what)


def _answer(make: Callable[[], str], writer: int) -> None:
    """Write what the function makes, or the error that it raises, and end this process."""
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        _limit_memory()
        try:
            answer = json.dumps({"text": make()})
        except MemoryError:
            answer = json.dumps({"error": f"it takes more than {MEMORY:,} bytes of memory"})
        except Exception as error:  # a program of a stranger raises what it likes
            answer = json.dumps({"error": str(error)[:500]})
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(answer.encode())
    finally:
        os._exit(0)


def _limit_memory() -> None:
    with suppress(ImportError, OSError, ValueError):  # elsewhere than on Linux time is the limit
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
        used = pages * os.sysconf("SC_PAGE_SIZE")
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        most = used + MEMORY
        if hard != resource.RLIM_INFINITY:
            most = min(most, hard)
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))


def _read(reader: int, what: str) -> bytes:
    """Return all that the other process writes."""
    end = time.monotonic() + SECONDS
    pieces: list[bytes] = []
    size = 0
    while True:
        ready, _, _ = select.select([reader], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            raise BadInput(f"{what} has not ended after {SECONDS:.0f} seconds.")
        piece = os.read(reader, 2**20)
        if not piece:
            return b"".join(pieces)
        size += len(piece)
        if size > LONGEST:
            raise BadInput(f"{what} makes a text of more than {LONGEST:,} bytes.")
        pieces.append(piece)


def _text_of(answer: bytes, what: str) -> str:
    if not answer:
        raise BadInput(f"{what} ended its process.")
    stored = json.loads(answer)
    if "error" in stored:
        raise BadInput(f"{what} refuses the messages: {stored['error']}.")
    return str(stored["text"])
