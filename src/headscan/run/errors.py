"""Errors: bad input, limits of the machine, a full disk."""

import errno
from collections.abc import Iterable
from difflib import get_close_matches
from typing import ClassVar


class BadInput(ValueError):
    """What the user gave cannot be used. The message is one clear sentence that says what and how
    to mend it.

    The command line prints the message alone on standard error and exits with status 2; every other
    exception is a fault of headscan's own (status 1).

    >>> str(BadInput("The text is empty."))
    'The text is empty.'
    """

    __module__ = "headscan"  # the name users know it by; tracebacks and documentation say that
    status: ClassVar[int] = 2
    """The exit status of the command line."""


class MachineLimit(BadInput):
    """Memory or disk space did not suffice, or a disk could not be reached. The input may be right.

    The command line ends with status 74.
    """

    status = 74


def disk_is_full(error: BaseException) -> bool:
    """Whether the system had no room for a file, told by its own error or as safetensors words it.

    >>> disk_is_full(OSError(28, "No space left on device"))
    True
    >>> disk_is_full(OSError(2, "No such file"))
    False
    """
    return getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or "No space left" in str(
        error
    )


def nearest(word: str, names: Iterable[str]) -> str:
    """A sentence that suggests the name nearest to a mistyped word, "" where none is near.

    >>> nearest("scna", ["scan", "train"]), nearest("zebra", ["scan", "train"])
    (" Did you mean 'scan'?", '')
    """
    matches = get_close_matches(word, list(names), n=1)
    return f" Did you mean {matches[0]!r}?" if matches else ""
