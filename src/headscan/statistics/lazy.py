"""Attributes that are worked out when they are first asked for, also by several threads at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

__all__ = ["lazy"]

T = TypeVar("T")


class lazy(Generic[T]):
    """As `functools.cached_property` is from Python 3.12 on: before, one lock of a class let no two objects work at once.

    >>> class Square:
    ...     def __init__(self, side): self.side = side
    ...     @lazy
    ...     def area(self): return self.side**2
    >>> square = Square(3)
    >>> square.area, vars(square)
    (9, {'side': 3, 'area': 9})
    """

    def __init__(self, make: Callable[[Any], T]):
        self.make, self.__doc__ = make, make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, one: None, owner: type) -> Self: ...
    @overload
    def __get__(self, one: object, owner: type) -> T: ...
    def __get__(self, one: object | None, owner: type) -> Self | T:
        if one is None:
            return self
        value = vars(one)[self.name] = self.make(one)
        return value
