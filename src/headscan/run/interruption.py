"""A batch is counted whole or not at all, also when Ctrl-C comes in the middle of it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let a Ctrl-C (or a SIGTERM that the program handles) wait until the block has ended; a second one does not wait.

    KeyboardInterrupt is raised at the end of the block. Without this, an interruption could fall between two sites of a
    batch, and the stored state of the scan would hold the batch for some sites only. Signals reach the main thread
    alone; elsewhere nothing needs to be done.

    >>> try:
    ...     with uninterrupted():
    ...         signal.raise_signal(signal.SIGINT)
    ...         print("the block ends")
    ... except KeyboardInterrupt:
    ...     print("then it is interrupted")
    the block ends
    then it is interrupted
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    caught: list[int] = []

    def remember(number: int, frame: FrameType | None) -> None:
        if caught:
            raise KeyboardInterrupt
        caught.append(number)

    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    handled = {number: handler for number, handler in handlers.items() if callable(handler)}
    for number in handled:
        signal.signal(number, remember)
    try:
        yield
    finally:
        for number, handler in handled.items():
            signal.signal(number, handler)
    if caught:
        raise KeyboardInterrupt
