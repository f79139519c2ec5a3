"""When memory runs out: how an error says so, and going on with half as much at a time."""

from __future__ import annotations

from collections.abc import Callable

from headscan.run.errors import BadInput


def exhausted(error: BaseException) -> bool:
    """Whether an error means that memory ran out, on whatever device.

    >>> exhausted(MemoryError()), exhausted(RuntimeError("CUDA out of memory.")), exhausted(ValueError("no"))
    (True, True, False)
    """
    said = str(error).lower()
    named = type(error).__name__ in ("OutOfMemoryError", "MemoryError")
    return named or (isinstance(error, RuntimeError) and ("can't allocate memory" in said or "out of memory" in said))


def halving(count: int, work: Callable[[int, int], None], *, least: str, size: int | None = None) -> int:
    """Do `work(begin, end)` over all of range(count), in pieces half as large each time memory runs out.

    Args:
        count: how many there are.
        work: does one piece, or raises; a piece that ran out of memory is asked for again, smaller.
        least: what the sentence says where one at a time is still too much.
        size: of the first pieces; all at once by default.

    Returns:
        The size of the pieces that fitted.

    >>> done = []
    >>> def work(begin, end):
    ...     if end - begin > 2:
    ...         raise MemoryError
    ...     done.append((begin, end))
    >>> halving(5, work, least="Use a shorter prompt."), done
    (2, [(0, 2), (2, 4), (4, 5)])
    """
    size = max(1, min(count, size or count))
    begin = 0
    while begin < count:
        try:
            work(begin, min(begin + size, count))
        except (MemoryError, RuntimeError) as error:
            if not exhausted(error):
                raise
            if size == 1:
                raise BadInput(f"Memory runs out even for one at a time. {least}") from error
            size //= 2
            continue
        begin += size
    return size
