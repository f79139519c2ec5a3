"""What is worked out once for one object and kept with it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar, cast

__all__ = ["Memo"]

T = TypeVar("T")


class Memo:
    """An object with a store of answers that cannot change while it lives.

    >>> memo = Memo()
    >>> memo.once("answer", lambda: 6 * 7), memo.once("answer", lambda: 0)
    (42, 42)
    """

    def __init__(self) -> None:
        self._kept: dict[Hashable, object] = {}

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` gave when this `key` was first asked for."""
        if key not in self._kept:
            self._kept[key] = make()
        return cast(T, self._kept[key])
