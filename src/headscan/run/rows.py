"""Plain data: what JSON can say, and rows of it whose columns are known only when they are made."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

    Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None
else:
    Json = object  # what pydantic takes anything for

Interval: TypeAlias = tuple[float, float]
Cell: TypeAlias = "bool | int | float | str | list[Any] | dict[str, Any] | None"


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


class Row(Mapping[str, Cell]):
    """Named plain values; NAME_interval belongs to NAME, and `notes` say why a value is not there.

    >>> row = Row(site="block.0", average_cosine=0.5, average_cosine_interval=(0.4, 0.6), notes=["few tokens"])
    >>> row["site"], row.number("average_cosine"), row.interval("average_cosine"), row.number("nothing"), row.notes
    ('block.0', 0.5, (0.4, 0.6), None, ['few tokens'])
    """

    __slots__ = ("_cells",)

    def __init__(self, cells: Mapping[str, object] | None = None, /, **more: object) -> None:
        self._cells: dict[str, Cell] = {str(name): plain(value) for name, value in {**(cells or {}), **more}.items()}

    def __getitem__(self, name: str) -> Cell:
        return self._cells[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._cells)

    def __len__(self) -> int:
        return len(self._cells)

    def __or__(self, other: Mapping[str, object]) -> Row:
        return Row({**self._cells, **other})

    def __ror__(self, other: Mapping[str, object]) -> Row:
        return Row({**other, **self._cells})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mapping) and self._cells == dict(other)

    __hash__ = None  # type: ignore[assignment]

    def number(self, name: str) -> float | None:
        """A finite number, or None where there is none."""
        value = self._cells.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return value
        return None

    def interval(self, name: str) -> Interval | None:
        """The 95 % interval of a number, None where it has none."""
        value = self._cells.get(f"{name}_interval")
        if isinstance(value, list) and len(value) == 2 and all(isinstance(end, int | float) for end in value):
            return float(value[0]), float(value[1])
        return None

    def numbers(self, name: str) -> list[float]:
        """The finite numbers of a list; [] where there is none."""
        value = self._cells.get(name)
        return [one for one in value if isinstance(one, int | float)] if isinstance(value, list) else []

    def text(self, name: str) -> str:
        """A word or sentence; "" where there is none."""
        value = self._cells.get(name)
        return "" if value is None else str(value)

    @property
    def notes(self) -> list[str]:
        """What a reader must know, as sentences."""
        value = self._cells.get("notes")
        return [str(note) for note in value] if isinstance(value, list) else []

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value!r}"
            for name, value in self._cells.items()
            if not isinstance(value, list | dict)
        )
        return f"Row({shown})"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(cls, core_schema.dict_schema(core_schema.str_schema()))
