"""Plain data: what JSON can say, and how anything of headscan's becomes it."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None
else:
    Json = object  # what pydantic takes anything for


def plain(value: object) -> Json:
    """The value as JSON can say it: dataclasses as objects, arrays as lists, NaN and infinities as null.

    Fields of a dataclass that begin with an underscore, or whose metadata says `json=False`, are left out.

    >>> plain({"a": (1, float("nan"))})
    {'a': [1, None]}
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: plain(getattr(value, field.name))
            for field in dataclasses.fields(value)
            if not field.name.startswith("_") and field.metadata.get("json", True)
        }
    if isinstance(value, os.PathLike):
        return str(os.fspath(value))
    if hasattr(value, "tolist"):  # numpy's arrays and numbers, torch's tensors
        return plain(value.tolist())
    return str(value)
