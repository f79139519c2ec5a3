"""A command in this process: one of its own takes seconds to start, and is taken only where it matters."""

from __future__ import annotations

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from unittest import mock

from headscan.cli import main

__all__ = ["Said", "headscan"]


@dataclass(frozen=True)
class Said:
    """How a command ended, and what it said."""

    status: int
    stdout: str
    stderr: str


def headscan(*words: str) -> Said:
    """`headscan WORDS`."""
    out, err, status = io.StringIO(), io.StringIO(), 0
    with mock.patch.object(sys, "argv", ["headscan", *words]), redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as leaving:
            status = leaving.code if isinstance(leaving.code, int) else 0 if leaving.code is None else 1
    return Said(status, out.getvalue(), err.getvalue())
