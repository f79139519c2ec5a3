"""Memory that runs out, of the machine or of a GPU: work goes on in smaller pieces, or ends in one
sentence.
"""

import gc
import logging
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from headscan.run.errors import MachineLimit

SAVING = ("batch", "context", "length", "windows", "sites", "dtype", "device")
"""Options that change how much memory a verb takes."""


def exhausted(error: BaseException) -> bool:
    """Return whether an error means that memory ran out, on whatever device.

    >>> exhausted(MemoryError()), exhausted(RuntimeError("CUDA out of memory."))
    (True, True)
    >>> exhausted(ValueError("no"))
    False
    """
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    message = str(error).lower()
    phrases = ("can't allocate memory", "out of memory", "alloc_failed")
    return isinstance(error, RuntimeError) and any(phrase in message for phrase in phrases)


def memory_ran_out(error: BaseException, options: Iterable[str]) -> MachineLimit:
    """Return the error that a user reads; `options` are the names of the verb's options.

    >>> print(memory_ran_out(MemoryError(), ["text", "batch", "out"]))
    Memory ran out. Change what a run takes of it: --batch.
    """
    reason = str(error).strip().partition("\n")[0].partition(". ")[0].rstrip(".")
    flags = [f"--{name}" for name in SAVING if name in set(options)]
    advice = f"Change what a run takes of it: {', '.join(flags)}." if flags else ""
    cause = f" ({reason[:120]})" if reason else ""
    return MachineLimit(f"Memory ran out{cause}. {advice}".strip())


def halving(count: int, work: Callable[[int, int], None], *, size: int | None = None) -> int:
    """Do `work(begin, end)` over all of range(count), in pieces half as large each time memory runs
    out; raise the error as it is where one at a time is still too much.

    `work` does one piece, or raises; a piece that ran out of memory is asked for again, smaller.

    Args:
        size: of the first pieces; by default all at once.

    Returns:
        The size of the pieces that fitted.

    >>> done = []
    >>> def work(begin, end):
    ...     if end - begin > 2:
    ...         raise MemoryError
    ...     done.append((begin, end))
    >>> halving(5, work), done
    (2, [(0, 2), (2, 4), (4, 5)])
    """
    size = max(1, size or count)
    begin = 0
    while begin < count:
        try:
            work(begin, min(begin + size, count))
        except (MemoryError, RuntimeError) as error:
            if size == 1 or not exhausted(error):
                raise
            fits = False
        else:
            fits = True
        if fits:
            begin += size
        else:  # the error is gone, and with it what it held
            size //= 2
            give_back()
    return size


def give_back() -> None:
    """Return to the device what the failed attempt held."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()


@dataclass(eq=False)
class FittingSize:
    """The number of rows that fit into the memory at once; unknown until memory runs out.

    It is kept, so that memory runs out once and not for each batch; this is said once, and `notes`
    has the sentence for the result.

    >>> size = FittingSize()
    >>> def work(begin, end):
    ...     if end - begin > 2:
    ...         raise MemoryError
    >>> size.run(8, work)
    >>> size.rows, size.notes
    (2, ['Memory ran out with 8 rows in a forward pass; passes have 2 rows at most.'])
    """

    rows: int | None = None
    notes: list[str] = field(default_factory=list)
    _first: int = 0

    def fits(self, rows: int) -> bool:
        """Return whether so many rows fit, as far as is known."""
        return self.rows is None or rows <= self.rows

    def run(
        self,
        count: int,
        work: Callable[[int, int], None],
        *,
        most: int | None = None,
        tried: int | None = None,
    ) -> None:
        """Do `work(begin, end)` over range(count), in pieces that fit.

        Args:
            most: rows of a piece; by default all.
            tried: rows with which memory ran out before; the first pieces have half of them.

        The error is raised as it is where one row does not fit.
        """
        limits = [count]
        if most is not None:
            limits.append(most)
        if self.rows is not None:
            limits.append(self.rows)
        if tried is not None:
            limits.append(tried // 2)
        first = min(limits)
        fitted = halving(count, work, size=first)
        if fitted < first or tried is not None:
            self.shrink(tried or first, fitted)

    def shrink(self, tried: int, rows: int) -> None:
        """Note that memory ran out with `tried` rows, and that passes have `rows` from then on."""
        self._first = self._first or tried
        sentence = (
            f"Memory ran out with {self._first} rows in a forward pass; passes have {rows} "
            f"row{'s' if rows > 1 else ''} at most."
        )
        if not self.notes:
            logging.getLogger("headscan").warning(sentence)
        self.rows = rows
        self.notes[:] = [sentence]
