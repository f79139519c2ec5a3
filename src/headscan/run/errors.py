"""What goes wrong: bad input, a full disk, memory that runs out, and names that went."""

import errno
import warnings
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any


class BadInput(ValueError):
    """What the user gave cannot be used. The message is one clear sentence that says what and how
    to mend it.

    The command line prints the message alone on standard error and exits with status 2; every other
    exception is a fault of headscan's own (status 1).

    >>> str(BadInput("The text is empty."))
    'The text is empty.'
    """

    __module__ = "headscan"  # the name users know it by; tracebacks and documentation say that


def disk_is_full(error: BaseException) -> bool:
    """Whether the system had no room for a file, told by its own error or as safetensors words it.

    >>> disk_is_full(OSError(28, "No space left on device")), disk_is_full(OSError(2, "No such file"))
    (True, False)
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


def exhausted(error: BaseException) -> bool:
    """Whether an error means that memory ran out, on whatever device.

    >>> exhausted(MemoryError()), exhausted(RuntimeError("CUDA out of memory.")), exhausted(ValueError("no"))
    (True, True, False)
    """
    message = str(error).lower()
    named = type(error).__name__ in ("OutOfMemoryError", "MemoryError")
    return named or (
        isinstance(error, RuntimeError)
        and ("can't allocate memory" in message or "out of memory" in message)
    )


def halving(
    count: int, work: Callable[[int, int], None], *, least: str, size: int | None = None
) -> int:
    """Do `work(begin, end)` over all of range(count), in pieces half as large each time memory runs
    out.

    `work` does one piece, or raises; a piece that ran out of memory is asked for again, smaller.
    `least` is the sentence of the BadInput where one at a time is still too much, `size` that of
    the first pieces (all at once by default). Returns the size of the pieces that fitted.

    >>> done = []
    >>> def work(begin, end):
    ...     if end - begin > 2:
    ...         raise MemoryError
    ...     done.append((begin, end))
    >>> halving(5, work, least="Use a shorter prompt."), done
    (2, [(0, 2), (2, 4), (4, 5)])
    """
    size = max(1, size or count)
    begin = 0
    while begin < count:
        try:
            work(begin, min(begin + size, count))
        except (MemoryError, RuntimeError) as error:
            if not exhausted(error):
                raise
            if size == 1:
                raise BadInput(least) from error
            size //= 2
            continue
        begin += size
    return size


def renamed(module: str, name: str, table: Mapping[str, str]) -> Any:
    """What a module's old name stands for, with a DeprecationWarning; for the module's
    `__getattr__`.

    `table` gives for an old name its new home: "package" where the name stayed, or
    "package:new_name". Raises AttributeError for a name that is not in it.

    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     renamed("headscan", "root", {"root": "math:sqrt"})(4.0), str(caught[0].message)
    (2.0, 'headscan.root is now math.sqrt; the old name goes with the next version.')
    """
    if name not in table:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    home, _, new = table[name].partition(":")
    message = (
        f"{module}.{name} is now {home}.{new or name}; the old name goes with the next version."
    )
    warnings.warn(message, DeprecationWarning, stacklevel=3)
    return getattr(import_module(home), new or name)
