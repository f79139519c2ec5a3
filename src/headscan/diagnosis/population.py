"""The reference population: what the conditions' numbers are in models that can be had by anyone."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

from headscan.run import BadInput

__all__ = ["Reference", "beside", "population"]


@dataclass(frozen=True, kw_only=True)
class Reference:
    """One model of the population: its name, whether it is a trained, healthy one, and the value of each condition by code."""

    model: str
    text: str
    kind: Literal["healthy", "ill"]
    values: dict[str, float]


@cache
def population() -> tuple[Reference, ...]:
    """All rows, as `scripts/population.py` wrote them."""
    from pydantic import TypeAdapter, ValidationError

    stored = json.loads(files("headscan.diagnosis").joinpath("population.json").read_text(encoding="utf-8"))
    try:
        return tuple(TypeAdapter(list[Reference]).validate_python(stored))
    except ValidationError as error:
        raise BadInput(f"The reference population is damaged: {error.errors()[0]['msg']}.") from None


def beside(code: str, value: float) -> str | None:
    """How a value stands among the healthy models; None where fewer than five have it.

    >>> beside("HS999", 0.5) is None
    True
    """
    known = [one.values[code] for one in population() if one.kind == "healthy" and code in one.values]
    if len(known) < 5:
        return None
    return f"Of {len(known)} healthy reference models {sum(other < value for other in known)} have less."
