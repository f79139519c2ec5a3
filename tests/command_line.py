"""A command in this process: one of its own takes seconds to start, and is taken only where it matters."""

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from unittest import mock

from headscan.cli import main
from tests.forked import exit_status

__all__ = ["Said", "headscan"]


@dataclass(frozen=True)
class Said:
    """How a command ended, and what it said."""

    status: int
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        return self.stdout + self.stderr


def headscan(*words: str) -> Said:
    """`headscan WORDS`."""
    out, err, status = io.StringIO(), io.StringIO(), 0
    with mock.patch.object(sys, "argv", ["headscan", *words]), redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as leaving:
            status = exit_status(leaving)
    return Said(status, out.getvalue(), err.getvalue())
