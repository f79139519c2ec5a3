"""Record what a run announces."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def announced() -> Iterator[list[str]]:
    """The sentences that headscan's logger is given in the block."""
    messages: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    handler = Keep()
    logging.getLogger("headscan").addHandler(handler)
    try:
        yield messages
    finally:
        logging.getLogger("headscan").removeHandler(handler)
