"""A Ctrl-C while the command line is imported ends the process, as it ends any program, without a
traceback; `headscan.cli.main` takes over.

This module is imported first. In a program that imports headscan it does nothing.
"""

import os
import signal
import sys
from contextlib import suppress


def is_command(words: list[str]) -> bool:
    """Return whether a command line, as Python was given it, is one of headscan's.

    >>> is_command(["python", "/usr/bin/headscan", "scan"])
    True
    >>> is_command(["python", "program.py"])
    False
    """
    script = os.path.basename(words[1]) if len(words) > 1 else ""
    return script in ("headscan", "headscan.exe") or words[1:3] == ["-m", "headscan"]


if is_command(sys.orig_argv) and signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
    with suppress(ValueError):  # in another thread than the main one
        signal.signal(signal.SIGINT, signal.SIG_DFL)
