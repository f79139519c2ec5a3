"""Rows in batches that halve when memory runs out."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from headscan.run import BadInput, exhausted

__all__ = ["split_on_exhaustion"]


def split_on_exhaustion(run: Callable[[slice], Tensor], count: int, batch: int) -> tuple[Tensor, int, str | None]:
    """Run `run(slice)` over `count` rows in batches; when memory runs out, in batches of half the size.

    Returns the results concatenated, the size that went well, and a sentence if it had to shrink.

    >>> def run(part):
    ...     if part.stop - part.start > 3:
    ...         raise MemoryError
    ...     return torch.arange(part.start, part.stop)
    >>> split_on_exhaustion(run, 5, 8)
    (tensor([0, 1, 2, 3, 4]), 2, 'Memory ran out with batches of 8; batches of 2 are used.')
    """
    parts: list[Tensor] = []
    begin, first, note = 0, batch, None
    while begin < count or not parts:
        try:
            parts.append(run(slice(begin, min(begin + batch, count))))
            begin += batch
        except (MemoryError, RuntimeError) as error:
            if not exhausted(error):
                raise
            if batch == 1:
                raise BadInput(
                    "Memory runs out even for a single candidate: use a shorter prompt or a smaller model."
                ) from error
            batch //= 2
            note = f"Memory ran out with batches of {first}; batches of {batch} are used."
    return torch.cat(parts), batch, note
