"""A row of a table whose columns are known only when it is made: measures and probes, to which plug-ins add."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from headscan.run.plaindata import plain

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

Interval: TypeAlias = tuple[float, float]
Cell: TypeAlias = "bool | int | float | str | list[Any] | dict[str, Any] | None"


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
        return (
            value if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) else None
        )

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
