"""Models that several threads use: one of them works with a model at a time, the others wait."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar
from weakref import WeakValueDictionary

F = TypeVar("F", bound=Callable[..., Any])

_locks: WeakValueDictionary[int, Any] = WeakValueDictionary()
"""Locks that a thread holds or waits for, by the id of the model's first weights."""
_guard = threading.Lock()


def model_lock(model: Any) -> Any:
    """Return the lock of a model; its own thread may take it again.

    A model, a part of it with its first weights, and every Lens over it have one lock.
    """
    key = id(next(iter(model.parameters()), model))
    with _guard:
        return _locks.setdefault(key, threading.RLock())


@contextmanager
def models_locked(values: Iterable[Any]) -> Iterator[None]:
    """Hold the locks of the models among some values in this context; also of those in lists."""
    locks = {}
    for model in _models(values):
        lock = model_lock(model)
        locks[id(lock)] = lock
    with ExitStack() as held:
        for _, lock in sorted(locks.items()):  # in one order, so that no two threads wait in turn
            held.enter_context(lock)
        yield


def _models(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from _models(value)
        elif _is_model(value):
            yield value
        elif _is_model(getattr(value, "model", None)):  # a Lens
            yield value.model


def _is_model(value: Any) -> bool:
    return callable(getattr(value, "named_modules", None))


def in_this_thread(function: F) -> Any:
    """Return the function as one that does nothing in other threads than this one.

    >>> seen = []
    >>> note = in_this_thread(seen.append)
    >>> note(1)
    >>> thread = threading.Thread(target=note, args=(2,))
    >>> thread.start()
    >>> thread.join()
    >>> seen
    [1]
    """
    owner = threading.get_ident()

    def call(*positional: Any) -> Any:
        return function(*positional) if threading.get_ident() == owner else None

    return call
