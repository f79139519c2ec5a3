"""The reference population: what the conditions' numbers are in models that can be had by anyone."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Literal

from headscan.diagnosis.condition import alarming
from headscan.run import BadInput

if TYPE_CHECKING:
    from headscan.diagnosis.result import CheckupResult

__all__ = ["LEAST", "TOO_FEW", "Reference", "beside", "healthy_without", "population", "reference"]

TOO_FEW = "too few reference models"

LEAST = 5
"""Healthy models that must have a number before others are put beside it."""


@dataclass(frozen=True, kw_only=True)
class Reference:
    """One model of the population.

    Attributes:
        model: its name; about: what it is, in a few words. kind: a trained, healthy model; one with a fault, which `about`
            names; or one that nobody has judged, as `--contribute` writes it.
        text, tokens: what it read. budget, version: of the checkup, and of headscan.
        values: each condition's number, by code; present: the codes that are present.
    """

    model: str
    about: str = ""
    kind: Literal["healthy", "ill", "unjudged"]
    text: str
    tokens: int | None = None
    budget: str = ""
    version: str = ""
    values: dict[str, float]
    present: list[str]


@cache
def population() -> tuple[Reference, ...]:
    """All rows, as `scripts/population.py` wrote them."""
    from pydantic import TypeAdapter, ValidationError

    stored = json.loads(files("headscan.diagnosis").joinpath("population.json").read_text(encoding="utf-8"))
    try:
        return tuple(TypeAdapter(list[Reference]).validate_python(stored))
    except ValidationError as error:
        raise BadInput(f"The reference population is damaged: {error.errors()[0]['msg']}.") from None


def beside(code: str, value: float, *, least: bool = True) -> str:
    """How a value stands among the healthy models, the ill side being up (`least`) or down.

    >>> beside("HS999", 0.5)
    'too few reference models'
    """
    known = [one.values[code] for one in population() if one.kind == "healthy" and code in one.values]
    if len(known) < LEAST:
        return TOO_FEW
    models = "healthy models" + " that have this number" * (
        len(known) < sum(one.kind == "healthy" for one in population())
    )
    under, over = sum(other < value for other in known), sum(other > value for other in known)
    count = under if least else over
    if not count and set(known) == {value}:
        return f"the same as all {len(known)} {models}"
    side = "higher" if least else "lower"
    if not count:
        return f"no {side} than any of {len(known)} {models}"
    return f"{side} than {f'all {count}' if count == len(known) else f'{count} of {len(known)}'} {models}"


def healthy_without(codes: set[str]) -> tuple[int, int] | None:
    """How many of the healthy models raise none of these alarms, and of how many; None of fewer than five."""
    healthy = [one for one in population() if one.kind == "healthy"]
    if len(healthy) < LEAST:
        return None
    return sum(codes.isdisjoint(alarming(one.values)) for one in healthy), len(healthy)


def reference(result: CheckupResult, number: int) -> Reference:
    """The row of one examined source, for the population: nobody has judged it yet."""
    one, text = result.examinations[number], result.protocol.text
    return Reference(
        model=one.model, kind="unjudged", text=os.path.basename(str(text.source or "").rstrip("/")) if text is not None else "",
        tokens=text.tokens if text is not None else None,
        budget=str(result.protocol.settings.get("budget", "")), version=result.protocol.versions.get("headscan", ""),
        values={found.code: float(f"{found.value:.4g}") for found in one.observations if found.value is not None},
        present=[found.code for found in one.observations if found.present],
    )  # fmt: skip
