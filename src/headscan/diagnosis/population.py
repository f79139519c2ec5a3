"""The reference population: the conditions' numbers in models that anyone can get."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Literal

from headscan.diagnosis.registry import alarming
from headscan.diagnosis.result import CheckupResult
from headscan.run import BadInput

TOO_FEW = "too few reference models"

LEAST = 5
"""Models that must have a number before a value is compared with theirs."""


@dataclass(frozen=True, kw_only=True)
class Reference:
    """One model of the population."""

    model: str
    about: str = ""  # what it is, in a few words
    # ill with a fault that `about` names; contributed ones nobody has judged
    kind: Literal["healthy", "ill", "unjudged"]
    text: str
    tokens: int | None = None
    context: int | None = None  # tokens of a window
    budget: str = ""
    version: str = ""  # of headscan
    values: dict[str, float]  # each condition's number, by code
    present: list[str]  # codes

    @property
    def trained(self) -> bool:
        """Return whether it is a model as somebody trained it: no fault was put into it, and it was
        judged.
        """
        return self.kind != "unjudged" and not self.about.startswith("injected: ")


@cache
def population() -> tuple[Reference, ...]:
    """Return all rows, as `scripts/population.py` wrote them.

    Raises:
        BadInput: the file of the population is damaged.
    """
    from pydantic import TypeAdapter, ValidationError

    file = files("headscan.diagnosis").joinpath("population.json")
    rows = json.loads(file.read_text(encoding="utf-8"))
    try:
        return tuple(TypeAdapter(list[Reference]).validate_python(rows))
    except ValidationError as error:
        message = error.errors()[0]["msg"]
        raise BadInput(f"The reference population is damaged: {message}.") from None


def edition() -> str:
    """Return the version of the population, to be quoted with a percentile: it changes with any
    row.
    """
    rows = [asdict(model) for model in population()]
    return sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()[:8]


def trained_values(code: str) -> list[float]:
    """Return a condition's number in the trained models of the population, sorted."""
    return sorted(
        model.values[code] for model in population() if model.trained and code in model.values
    )


def percentile(code: str, value: float) -> float | None:
    """Return the share of trained reference models below a value, equal ones by half, in per cent;
    None of fewer than `LEAST` models.

    >>> percentile("HS999", 0.5), percentile("HS101", 99.0)
    (None, 100.0)
    """
    values = trained_values(code)
    if len(values) < LEAST:
        return None
    # The population keeps numbers in four digits: the value is rounded alike, or a model would not
    # equal itself.
    rounded = _in_four_digits(value)
    lower = sum(value_of_model < rounded for value_of_model in values)
    equal = values.count(rounded)
    return round(100 * (lower + 0.5 * equal) / len(values), 1)


def beside(code: str, value: float, *, least: bool = True) -> str:
    """Return how a value compares with the healthy models, the ill side being up (`least`) or down.

    >>> beside("HS999", 0.5)
    'too few reference models'
    """
    healthy = _healthy()
    values = [model.values[code] for model in healthy if code in model.values]
    if len(values) < LEAST:
        return TOO_FEW
    models = "healthy models"
    if len(values) < len(healthy):
        models = "healthy models that have this number"
    if set(values) == {value}:
        return f"the same as all {len(values)} {models}"

    if least:
        side = "higher"
        count = sum(value_of_model < value for value_of_model in values)
    else:
        side = "lower"
        count = sum(value_of_model > value for value_of_model in values)
    if count == 0:
        return f"no {side} than any of {len(values)} {models}"
    if count == len(values):
        return f"{side} than all {count} {models}"
    return f"{side} than {count} of {len(values)} {models}"


def healthy_without(codes: set[str]) -> tuple[int, int] | None:
    """Return how many of the healthy models raise none of these alarms, and how many there are;
    None of fewer than `LEAST`.
    """
    healthy = _healthy()
    if len(healthy) < LEAST:
        return None
    without_alarm = sum(codes.isdisjoint(alarming(model.values)) for model in healthy)
    return without_alarm, len(healthy)


def _healthy() -> Sequence[Reference]:
    return [model for model in population() if model.kind == "healthy"]


def _in_four_digits(value: float) -> float:
    return float(f"{value:.4g}")


def reference(result: CheckupResult, number: int) -> Reference:
    """Return the row of one examined source, for the population; it is not judged yet."""
    examination = result.examinations[number]
    protocol = result.protocol
    text = protocol.text
    text_name = ""
    tokens = None
    context = None
    if text is not None:
        text_name = os.path.basename(str(text.source or "").rstrip("/"))
        tokens = text.tokens
        context = text.context

    values = {}
    for observation in examination.observations:
        if observation.value is not None:
            values[observation.code] = _in_four_digits(observation.value)
    return Reference(
        model=examination.model,
        kind="unjudged",
        text=text_name,
        tokens=tokens,
        context=context or protocol.settings.get("context"),
        budget=str(protocol.settings.get("budget", "")),
        version=protocol.versions.get("headscan", ""),
        values=values,
        present=[
            observation.code for observation in examination.observations if observation.present
        ],
    )
