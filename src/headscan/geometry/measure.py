"""What a measure is: a pure function of a finished cloud of vectors, with everything a reader must know beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headscan.statistics import Cloud

__all__ = ["MEASURES", "Measure", "measure"]


@dataclass(frozen=True)
class Measure:
    """A named number that describes the shape of a cloud of vectors.

    Calling it with a `Cloud` gives the number, or None where it is not defined (`undefined` then says why).
    """

    name: str
    function: Callable[[Cloud], float | None]
    title: str
    group: str
    sentence: str
    formula: str
    range: tuple[float | None, float | None]
    unit: str
    cost: str
    source: str
    undefined: str
    spectral: bool  # needs the second moment
    core: bool = True  # in every scan; others only where `--measures` names them

    def __call__(self, cloud: Cloud) -> float | None:
        """The measure of this cloud; None where it is not defined."""
        return self.function(cloud)

    def describe(self) -> dict[str, Any]:
        """Everything but the function, ready for JSON."""
        return {
            "title": self.title,
            "group": self.group,
            "sentence": self.sentence,
            "formula": self.formula,
            "range": list(self.range),
            "unit": self.unit,
            "cost": self.cost,
            "source": self.source,
            "undefined": self.undefined,
            "core": self.core,
        }


MEASURES: dict[str, Measure] = {}
"""Every measure of a cloud by its name, in the order of the table."""


def measure(
    *,
    title: str,
    group: str,
    sentence: str,
    formula: str,
    range: tuple[float | None, float | None],
    source: str,
    undefined: str,
    unit: str = "",
    cost: str = "O(d) after one pass of O(nd)",
    spectral: bool = False,
    core: bool = True,
) -> Callable[[Callable[[Cloud], float | None]], Callable[[Cloud], float | None]]:
    """Register a function of a `Cloud` as a measure: it appears in `MEASURES`, the table, the page and the docs.

    The function itself comes back unchanged, so that its docstring and example stay where readers look for them.
    """

    def register(function: Callable[[Cloud], float | None]) -> Callable[[Cloud], float | None]:
        name = function.__name__
        MEASURES[name] = Measure(
            name, function, title, group, sentence, formula, range, unit, cost, source, undefined, spectral, core
        )
        return function

    return register
