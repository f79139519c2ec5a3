"""Reading plain data that anybody may have edited: a value of the wrong kind counts as one that is not there."""

from __future__ import annotations

from collections.abc import Mapping

from headscan.report.kit.words import value_of

Entry = Mapping[str, object]
"""An object of a document: a row, a record."""


def mapping(entry: Entry, key: str) -> Entry:
    """An object in it; empty where there is none."""
    value = entry.get(key)
    return value if isinstance(value, Mapping) else {}


def entries(entry: Entry, key: str) -> list[Entry]:
    """A list of objects in it."""
    value = entry.get(key)
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list | tuple) else []


def number(entry: Entry, key: str) -> float | None:
    """A finite number in it; whole ones stay whole."""
    value = entry.get(key)
    return None if value_of(value) is None else value  # type: ignore[return-value]


def text(entry: Entry, key: str, missing: str = "") -> str:
    """A text in it."""
    value = entry.get(key)
    return missing if value is None else str(value)


def strings(entry: Entry, key: str) -> list[str]:
    """A list of texts in it."""
    value = entry.get(key)
    return [str(item) for item in value] if isinstance(value, list | tuple) else []


def numbers(entry: Entry, key: str) -> list[float]:
    """A list of finite numbers in it."""
    value = entry.get(key)
    return [found for found in map(value_of, value) if found is not None] if isinstance(value, list | tuple) else []


def bounds(entry: Entry, name: str) -> tuple[float, float] | None:
    """The interval of the number `name`, or None where either is not defined."""
    value = entry.get(f"{name}_interval")
    if number(entry, name) is None or not isinstance(value, list | tuple) or len(value) != 2:
        return None
    low, high = value_of(value[0]), value_of(value[1])
    return None if low is None or high is None else (low, high)
