"""The reference population: the conditions' numbers in models that anyone can get."""

import json
import os
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Literal

from headscan.diagnosis.evidence import ModelEvidence
from headscan.diagnosis.registry import alarming
from headscan.diagnosis.result import CheckupResult
from headscan.run import BadInput

TOO_FEW = "too few reference models"

LEAST = 4
LEAST_PEERS = 2  # of one model's size: one healthy model is no range
"""Models that must have a number before a value is compared with theirs."""
SIZE = 4.0
"""Models whose numbers of parameters differ by at most this factor are of about the same size."""


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
    embeds: bool = False  # an embedding model: its numbers are of the sentence vector
    parameters: int | None = None
    weights: str = ""  # the hash of its weights (`headscan.diagnosis.weights.fingerprint_of`)


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
    """Return the version of the population, which changes with any row."""
    rows = [asdict(model) for model in population()]
    return sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()[:8]


def compared_with(evidence: ModelEvidence | None = None) -> list[Reference]:
    """Return the healthy models that a source is compared with: embeddings with embeddings,
    language models with language models, and no model with itself, which its weights tell.

    Without a source, all of them.
    """
    healthy = [model for model in population() if model.kind == "healthy"]
    if evidence is None:
        return healthy
    return [
        model
        for model in healthy
        if model.embeds == evidence.embeds and not _is_same(model, evidence)
    ]


def _is_same(model: Reference, evidence: ModelEvidence) -> bool:
    return bool(model.weights) and model.weights == evidence.weights


def beside(
    code: str, value: float, evidence: ModelEvidence | None = None, *, least: bool = True
) -> str:
    """Return how a value compares with the healthy models, the ill side being up (`least`) or down.

    >>> beside("HS999", 0.5)
    'too few reference models'
    """
    healthy = compared_with(evidence)
    values = [model.values[code] for model in healthy if code in model.values]
    if len(values) < LEAST:
        return TOO_FEW
    models = "healthy models"
    if len(values) < len(healthy):
        models = "healthy models that have this number"
    # The population keeps numbers in four digits: the value is rounded alike.
    value = _in_four_digits(value)
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


def highest_loss(evidence: ModelEvidence) -> tuple[float, int] | None:
    """Return the highest loss over that of counting (HS201) among the healthy models of about the
    same size on the same text, and how many these are; None of fewer than `LEAST_PEERS`.
    """
    text = evidence.text
    record = evidence.record
    if text is None or record is None or not record.parameters:
        return None
    ratios = []
    for model in compared_with(evidence):
        same_text = model.text == _text_name(text.source)
        sizes = (model.parameters or 0, record.parameters)
        alike = max(sizes) <= SIZE * min(sizes)
        if same_text and alike and "HS201" in model.values:
            ratios.append(model.values["HS201"])
    return (max(ratios), len(ratios)) if len(ratios) >= LEAST_PEERS else None


def _text_name(source: str | None) -> str:
    return os.path.basename(str(source or "").rstrip("/"))


def healthy_without(
    codes: set[str], evidence: ModelEvidence | None = None
) -> tuple[int, int] | None:
    """Return how many of the healthy models raise none of these alarms, and how many there are;
    None of fewer than `LEAST`.
    """
    healthy = compared_with(evidence)
    if len(healthy) < LEAST:
        return None
    without_alarm = sum(codes.isdisjoint(alarming(model.values)) for model in healthy)
    return without_alarm, len(healthy)


def _in_four_digits(value: float) -> float:
    return float(f"{value:.4g}")


def reference(result: CheckupResult, number: int) -> Reference:
    """Return the row of one examined source, for the population; it is not judged yet."""
    examination = result.examinations[number]
    evidence = examination.evidence
    protocol = result.protocol
    text = evidence.text or protocol.text
    text_name = ""
    tokens = None
    context = None
    if text is not None:
        text_name = _text_name(text.source)
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
        embeds=evidence.embeds,
        parameters=None if evidence.record is None else evidence.record.parameters,
        weights=evidence.weights,
    )
