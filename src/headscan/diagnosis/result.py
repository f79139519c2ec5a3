"""What a checkup found."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Annotated, ClassVar, Literal

from headscan.diagnosis.evidence import ModelEvidence
from headscan.diagnosis.registry import CONDITIONS, Question, Seen, alarming
from headscan.run import (
    BadInput,
    DataFrame,
    Finding,
    FindingDetails,
    Interval,
    Result,
    Term,
    dataframe,
)
from headscan.scanner.findings import FEW


@dataclass(frozen=True, kw_only=True)
class Observation(Finding):
    """A condition as it was found in one source, present or not; title, question, meaning, source
    and unit are its words.
    """

    title: str
    question: Question
    meaning: str
    source: str
    unit: Annotated[str, Term("of", where="page")]
    threshold: float  # from here on (`least`), or down to here, it is named
    least: bool
    present: bool
    known: bool  # many healthy models have it, and it is a notice, no alarm
    possible: bool = False  # an alarm, were it not for too few tokens: it counts as a notice
    advice: str  # what would help
    value: Annotated[float | None, Term("value", "What the condition rests on.")] = None
    interval: Interval | None = None  # of the value
    sure: bool | None = (
        None  # whether the whole interval is on the value's side of the threshold; None without one
    )
    null: Annotated[
        float | None,
        Term(
            "chance",
            "What random weights of the same architecture give, or guessing without a state.",
            where="page",
        ),
    ] = None
    alarm: float | None = None  # from here on it is an alarm, where that is not the threshold
    null_of: str = "with random weights"
    beside: Annotated[
        str | None, Term("reference", "The value among the reference models.", where="page")
    ] = None
    percentile: Annotated[
        float | None,
        Term(
            "percentile",
            "Share of the trained reference models with a lower value, equal ones by half; all "
            "read `stories`.",
            where="page",
            unit="%",
        ),
    ] = None

    @property
    def details(self) -> FindingDetails:
        """Return title, advice and unit, as pages show them."""
        return FindingDetails(
            title=self.title, advice=self.advice, unit=self.unit, known=self.known
        )


@dataclass(frozen=True, kw_only=True)
class Examination:
    """One source: the evidence, every condition that could be looked for, and five sentences."""

    model: str
    evidence: ModelEvidence
    observations: list[Observation]
    summary: list[str]
    # fewer tokens were read than an alarm on the text needs: that there is none says nothing
    too_few: bool = False

    @property
    def shortage(self) -> str:
        """Say how many tokens were read and how many an alarm needs; empty where enough were read."""
        text = self.evidence.text
        if not self.too_few or text is None:
            return ""
        return f"{text.tokens or 0:,} {self.evidence.unit} were read, and an alarm needs {FEW:,}"


@dataclass(frozen=True, kw_only=True, repr=False)
class CheckupResult(Result):
    """Four questions about one or more models (or stored states) on one page."""

    kind: ClassVar[str] = "checkup"

    # the conditions that are present, alarms first
    findings: Sequence[Observation] = field(default_factory=list)
    examinations: list[Examination]  # one a source, with what was looked for and not found
    failed: list[str] = field(default_factory=list)  # the codes of `--fail-on` that were found
    population: str = ""  # the edition of the reference population that the percentiles are of

    @property
    def without_alarm(self) -> str:
        """What a list of results says of this one where it has no alarm."""
        short = next(
            (examination for examination in self.examinations if examination.too_few), None
        )
        return "no alarm" if short is None else f"too few {short.evidence.unit} to raise an alarm"

    def frame(self) -> DataFrame:
        """A pandas table: one row a source and condition that was looked for."""
        return dataframe(
            [
                asdict(observation)
                for examination in self.examinations
                for observation in examination.observations
            ]
        )


# ---- The reference population: what the conditions' numbers are in models that can be had by anyone.

TOO_FEW = "too few reference models"

LEAST = 5
"""Healthy models that must have a number before others are put beside it."""


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
        """Whether it is a model as somebody trained it: no fault was put into it, and it was
        judged.
        """
        return self.kind != "unjudged" and not self.about.startswith("injected: ")


@cache
def population() -> tuple[Reference, ...]:
    """All rows, as `scripts/population.py` wrote them."""
    from pydantic import TypeAdapter, ValidationError

    stored = json.loads(
        files("headscan.diagnosis").joinpath("population.json").read_text(encoding="utf-8")
    )
    try:
        return tuple(TypeAdapter(list[Reference]).validate_python(stored))
    except ValidationError as error:
        raise BadInput(
            f"The reference population is damaged: {error.errors()[0]['msg']}."
        ) from None


def edition() -> str:
    """The version of the population, to be quoted with a percentile: it changes with any row."""
    return sha256(
        json.dumps([asdict(model) for model in population()], sort_keys=True).encode()
    ).hexdigest()[:8]


def trained_values(code: str) -> list[float]:
    """A condition's number in the trained models of the population, sorted."""
    return sorted(
        model.values[code] for model in population() if model.trained and code in model.values
    )


def percentile(code: str, value: float) -> float | None:
    """The share of trained reference models below a value, equal ones by half, in per cent; None of
    fewer than `LEAST` models.

    >>> percentile("HS999", 0.5), percentile("HS101", 99.0)
    (None, 100.0)
    """
    known = trained_values(code)
    if len(known) < LEAST:
        return None
    # A number of the population is kept in four digits: so is the one beside it, or a model would
    # not equal itself.
    rounded = float(f"{value:.4g}")
    return round(
        100
        * sum(
            (value_of_model < rounded) + 0.5 * (value_of_model == rounded)
            for value_of_model in known
        )
        / len(known),
        1,
    )


def beside(code: str, value: float, *, least: bool = True) -> str:
    """How a value stands among the healthy models, the ill side being up (`least`) or down.

    >>> beside("HS999", 0.5)
    'too few reference models'
    """
    known = [
        model.values[code]
        for model in population()
        if model.kind == "healthy" and code in model.values
    ]
    if len(known) < LEAST:
        return TOO_FEW
    healthy = sum(model.kind == "healthy" for model in population())
    models = "healthy models" + " that have this number" * (len(known) < healthy)
    if set(known) == {value}:
        return f"the same as all {len(known)} {models}"
    side = "higher" if least else "lower"
    count = sum(
        value_of_model < value if least else value_of_model > value for value_of_model in known
    )
    if not count:
        return f"no {side} than any of {len(known)} {models}"
    return (
        f"{side} than {f'all {count}' if count == len(known) else f'{count} of {len(known)}'} "
        f"{models}"
    )


def healthy_without(codes: set[str]) -> tuple[int, int] | None:
    """How many of the healthy models raise none of these alarms, and of how many; None of fewer
    than five.
    """
    healthy = [model for model in population() if model.kind == "healthy"]
    if len(healthy) < LEAST:
        return None
    return sum(codes.isdisjoint(alarming(model.values)) for model in healthy), len(healthy)


def reference(result: CheckupResult, number: int) -> Reference:
    """The row of one examined source, for the population: nobody has judged it yet."""
    examination = result.examinations[number]
    text = result.protocol.text
    return Reference(
        model=examination.model,
        kind="unjudged",
        text=os.path.basename(str(text.source or "").rstrip("/")) if text is not None else "",
        tokens=text.tokens if text is not None else None,
        context=(text.context if text is not None else None)
        or result.protocol.settings.get("context"),
        budget=str(result.protocol.settings.get("budget", "")),
        version=result.protocol.versions.get("headscan", ""),
        values={
            observation.code: float(f"{observation.value:.4g}")
            for observation in examination.observations
            if observation.value is not None
        },
        present=[
            observation.code for observation in examination.observations if observation.present
        ],
    )


# ---- An examination in five sentences: one on each question, and what to do.

QUESTIONS: tuple[tuple[Question, str], ...] = (
    ("shape", "Shape"),
    ("cause", "Prediction"),
    ("leak", "Leak"),
    ("cure", "Remedy"),
)


def summary(evidence: ModelEvidence, observations: Sequence[Observation]) -> list[str]:
    """The most telling observation of each question, whether it is an alarm, a notice or neither,
    its interval, what chance gives and how reference models stand; then the verdict. A question
    without any observation says why.
    """
    sentences = []
    ordered_observations = ordered(observations)
    for question, title in QUESTIONS:
        if mine := [
            observation for observation in ordered_observations if observation.question == question
        ]:
            heading = CONDITIONS[mine[0].code].heading or title
            sentences.append(
                f"{heading}, {_found(mine[0])}: {mine[0].sentence.rstrip('.')}{_beside(mine[0])}."
            )
            continue
        why = next(
            (reason for reason in evidence.skipped if _about(question, reason)),
            "nothing could be examined.",
        )
        sentences.append(f"{title}: {why}")
    return [*sentences, _verdict(evidence, ordered_observations)]


def ordered(observations: Sequence[Observation]) -> list[Observation]:
    """Alarms first, those first that bring others about; then possible alarms and notices, by code;
    then what is nearest to its threshold.
    """
    present = {
        observation.code
        for observation in observations
        if observation.present and not observation.known
    }
    follows = {
        code
        for observation in present
        for code in CONDITIONS[observation].brings
        if observation in CONDITIONS
    }

    def urgency(observation: Observation) -> tuple[bool, bool, bool, bool, float, str]:
        value = float("inf") if observation.value is None else observation.value
        distance = abs(value - observation.threshold) / max(abs(observation.threshold), 1e-9)
        alarm = observation.present and not observation.known
        notice = observation.present and not alarm
        return (
            not alarm,
            not observation.possible,
            not observation.present,
            alarm and observation.code in follows,
            0.0 if notice else distance,
            observation.code,
        )

    return sorted(observations, key=urgency)


def _found(observation: Observation) -> str:
    level = "possible alarm" if observation.possible else "notice" if observation.known else "alarm"
    return (
        f"{level} {observation.code} ({observation.title.lower()})"
        if observation.present
        else "no finding"
    )


def beyond_limit(possible: Sequence[Observation]) -> str:
    """Say how many numbers lie beyond the limit of an alarm that could not be raised.

    >>> beyond_limit([])
    'no number lies beyond its limit'
    """
    count = len(possible) or "no"
    return (
        f"{count} numbers lie beyond their limit"
        if len(possible) > 1
        else f"{count} number lies beyond its limit"
    )


def _verdict(evidence: ModelEvidence, observations: Sequence[Observation]) -> str:
    looked = [
        observation
        for observation in observations
        if not CONDITIONS[observation.code].known or CONDITIONS[observation.code].brings
    ]
    alarms = [
        observation for observation in looked if observation.present and not observation.known
    ]
    reference = _elsewhere(looked)
    possible = [observation for observation in observations if observation.possible]
    if not alarms and evidence.few:
        read = evidence.text.tokens if evidence.text is not None else 0
        names = f" ({_named(possible)})" if possible else ""
        return (
            f"Too few {evidence.unit} to raise an alarm: {read:,} were read, {FEW:,} are needed; "
            f"{beyond_limit(possible)}{names}."
        )
    if not alarms:
        return (
            "; ".join(
                [
                    f"No alarm: none of the {len(looked)} alarms that were looked for is raised",
                    *reference,
                ]
            )
            + "."
        )
    first = alarms[0]
    follow = [
        observation
        for observation in alarms[1:]
        if observation.code in CONDITIONS[first.code].brings
    ]
    independent = [observation for observation in alarms[1:] if observation not in follow]
    consequences = f"; {_named(follow)} may follow from it" * bool(
        follow
    ) + f"; {_named(independent)} as well" * bool(independent)
    are = "is" if len(alarms) == 1 else "are"
    raised = f"{len(alarms)} of {len(looked)} alarms {are} raised: {_named([first])}{consequences}."
    known = "; ".join(reference)
    return (
        f"What to do first: {first.advice.rstrip('.')}. {raised}"
        + f" {known[:1].upper()}{known[1:]}." * bool(known)
    )


def _elsewhere(looked: Sequence[Observation]) -> list[str]:
    """How many of these alarms reference models raise, and which of them the architecture raises
    without its training.
    """
    codes = {observation.code for observation in looked}
    sentences = list[str]()
    if (healthy := healthy_without(codes)) is not None:
        many = f"all {healthy[1]}" if healthy[0] == healthy[1] else f"{healthy[0]} of {healthy[1]}"
        sentences.append(f"{many} healthy reference models raise none")
    if nulls := {
        observation.code: observation.null
        for observation in looked
        if observation.null is not None and observation.null_of == Seen.null_of
    }:
        random = [observation for observation in looked if observation.code in alarming(nulls)]
        names = f"{len(random)}: {_named(random)}" if random else "none"
        sentences.append(f"the same architecture with random weights raises {names}")
    return sentences


def _named(observations: Sequence[Observation]) -> str:
    """Conditions by name and code."""
    names = [f"{observation.title.lower()} ({observation.code})" for observation in observations]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _beside(observation: Observation) -> str:
    """The number with its interval, what chance gives, and how reference models stand."""
    ends = (
        f", 95% interval {observation.interval[0]:.3g} to {observation.interval[1]:.3g}"
        if observation.interval is not None
        else ""
    )
    parts = (
        [f"{observation.unit.split(' (')[0]} {observation.value:.3g}{ends}"]
        if observation.value is not None
        else []
    )
    parts += (
        [f"{observation.null_of} {observation.null:.2g}"] if observation.null is not None else []
    )
    parts += [observation.beside] if observation.beside and observation.beside != TOO_FEW else []
    return f" ({'; '.join(parts)})" if parts else ""


def _about(question: Question, reason: str) -> bool:
    headings = {"leak": "inverted", "cause": "loss", "cure": "remedy", "shape": ""}
    return headings[question] in reason or "Stored states" in reason
