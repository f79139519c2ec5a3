"""A command in this process: one of its own takes seconds to start, and is taken only where it
matters.
"""

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from unittest import mock

from headscan.cli import main
from tests.forked import exit_status

__all__ = ["Said", "headscan", "typed"]


@dataclass(frozen=True)
class Said:
    """The exit status of a command, and what it printed."""

    status: int
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        return self.stdout + self.stderr


def typed(*args: str) -> None:
    """`headscan WORDS` to its end, with the streams as they are."""
    with mock.patch.object(sys, "argv", ["headscan", *args]):
        main()


def headscan(*args: str) -> Said:
    """`headscan WORDS`."""
    out = io.StringIO()
    err = io.StringIO()
    status = 0
    with redirect_stdout(out), redirect_stderr(err):
        try:
            typed(*args)
        except SystemExit as leaving:
            status = exit_status(leaving)
    return Said(status, out.getvalue(), err.getvalue())
