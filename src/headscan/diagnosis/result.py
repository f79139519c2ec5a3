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
from headscan.run import BadInput, DataFrame, Finding, Interval, Result, Term, dataframe
from headscan.scanner.cautions import FEW


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
        short = next((one for one in self.examinations if one.too_few), None)
        return "no alarm" if short is None else f"too few {short.evidence.unit} to raise an alarm"

    def frame(self) -> DataFrame:
        """A pandas table: one row a source and condition that was looked for."""
        return dataframe([asdict(one) for each in self.examinations for one in each.observations])


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
        json.dumps([asdict(one) for one in population()], sort_keys=True).encode()
    ).hexdigest()[:8]


def trained_values(code: str) -> list[float]:
    """A condition's number in the trained models of the population, sorted."""
    return sorted(one.values[code] for one in population() if one.trained and code in one.values)


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
        100 * sum((other < rounded) + 0.5 * (other == rounded) for other in known) / len(known), 1
    )


def beside(code: str, value: float, *, least: bool = True) -> str:
    """How a value stands among the healthy models, the ill side being up (`least`) or down.

    >>> beside("HS999", 0.5)
    'too few reference models'
    """
    known = [
        one.values[code] for one in population() if one.kind == "healthy" and code in one.values
    ]
    if len(known) < LEAST:
        return TOO_FEW
    healthy = sum(one.kind == "healthy" for one in population())
    models = "healthy models" + " that have this number" * (len(known) < healthy)
    if set(known) == {value}:
        return f"the same as all {len(known)} {models}"
    side = "higher" if least else "lower"
    count = sum(other < value if least else other > value for other in known)
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
    healthy = [one for one in population() if one.kind == "healthy"]
    if len(healthy) < LEAST:
        return None
    return sum(codes.isdisjoint(alarming(one.values)) for one in healthy), len(healthy)


def reference(result: CheckupResult, number: int) -> Reference:
    """The row of one examined source, for the population: nobody has judged it yet."""
    one = result.examinations[number]
    text = result.protocol.text
    return Reference(
        model=one.model,
        kind="unjudged",
        text=os.path.basename(str(text.source or "").rstrip("/")) if text is not None else "",
        tokens=text.tokens if text is not None else None,
        context=(text.context if text is not None else None)
        or result.protocol.settings.get("context"),
        budget=str(result.protocol.settings.get("budget", "")),
        version=result.protocol.versions.get("headscan", ""),
        values={
            found.code: float(f"{found.value:.4g}")
            for found in one.observations
            if found.value is not None
        },
        present=[found.code for found in one.observations if found.present],
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
    said = []
    every = ordered(observations)
    for question, title in QUESTIONS:
        if mine := [one for one in every if one.question == question]:
            heading = CONDITIONS[mine[0].code].heading or title
            said.append(
                f"{heading}, {_found(mine[0])}: {mine[0].sentence.rstrip('.')}{_beside(mine[0])}."
            )
            continue
        why = next(
            (reason for reason in evidence.skipped if _about(question, reason)),
            "nothing could be examined.",
        )
        said.append(f"{title}: {why}")
    return [*said, _verdict(evidence, every)]


def ordered(observations: Sequence[Observation]) -> list[Observation]:
    """Alarms first, those first that bring others about; then possible alarms and notices, by code;
    then what is nearest to its threshold.
    """
    present = {one.code for one in observations if one.present and not one.known}
    follows = {code for one in present for code in CONDITIONS[one].brings if one in CONDITIONS}

    def urgency(one: Observation) -> tuple[bool, bool, bool, bool, float, str]:
        value = float("inf") if one.value is None else one.value
        distance = abs(value - one.threshold) / max(abs(one.threshold), 1e-9)
        alarm = one.present and not one.known
        notice = one.present and not alarm
        return (
            not alarm,
            not one.possible,
            not one.present,
            alarm and one.code in follows,
            0.0 if notice else distance,
            one.code,
        )

    return sorted(observations, key=urgency)


def _found(one: Observation) -> str:
    level = "possible alarm" if one.possible else "notice" if one.known else "alarm"
    return f"{level} {one.code} ({one.title.lower()})" if one.present else "no finding"


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


def _verdict(evidence: ModelEvidence, every: Sequence[Observation]) -> str:
    looked = [one for one in every if not CONDITIONS[one.code].known or CONDITIONS[one.code].brings]
    alarms = [one for one in looked if one.present and not one.known]
    reference = _elsewhere(looked)
    possible = [one for one in every if one.possible]
    if not alarms and evidence.few:
        read = evidence.text.tokens if evidence.text is not None else 0
        which = f" ({_named(possible)})" if possible else ""
        return (
            f"Too few {evidence.unit} to raise an alarm: {read:,} were read, {FEW:,} are needed; "
            f"{beyond_limit(possible)}{which}."
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
    follow = [one for one in alarms[1:] if one.code in CONDITIONS[first.code].brings]
    rest = [one for one in alarms[1:] if one not in follow]
    more = f"; {_named(follow)} may follow from it" * bool(
        follow
    ) + f"; {_named(rest)} as well" * bool(rest)
    are = "is" if len(alarms) == 1 else "are"
    raised = f"{len(alarms)} of {len(looked)} alarms {are} raised: {_named([first])}{more}."
    known = "; ".join(reference)
    return (
        f"What to do first: {first.advice.rstrip('.')}. {raised}"
        + f" {known[:1].upper()}{known[1:]}." * bool(known)
    )


def _elsewhere(looked: Sequence[Observation]) -> list[str]:
    """How many of these alarms reference models raise, and which of them the architecture raises
    without its training.
    """
    codes = {one.code for one in looked}
    said = list[str]()
    if (healthy := healthy_without(codes)) is not None:
        many = f"all {healthy[1]}" if healthy[0] == healthy[1] else f"{healthy[0]} of {healthy[1]}"
        said.append(f"{many} healthy reference models raise none")
    if nulls := {
        one.code: one.null for one in looked if one.null is not None and one.null_of == Seen.null_of
    }:
        random = [one for one in looked if one.code in alarming(nulls)]
        which = f"{len(random)}: {_named(random)}" if random else "none"
        said.append(f"the same architecture with random weights raises {which}")
    return said


def _named(some: Sequence[Observation]) -> str:
    """Conditions by name and code."""
    names = [f"{one.title.lower()} ({one.code})" for one in some]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _beside(one: Observation) -> str:
    """The number with its interval, what chance gives, and how reference models stand."""
    ends = (
        f", 95% interval {one.interval[0]:.3g} to {one.interval[1]:.3g}"
        if one.interval is not None
        else ""
    )
    said = [f"{one.unit.split(' (')[0]} {one.value:.3g}{ends}"] if one.value is not None else []
    said += [f"{one.null_of} {one.null:.2g}"] if one.null is not None else []
    said += [one.beside] if one.beside and one.beside != TOO_FEW else []
    return f" ({'; '.join(said)})" if said else ""


def _about(question: Question, reason: str) -> bool:
    words = {"leak": "inverted", "cause": "loss", "cure": "remedy", "shape": ""}
    return words[question] in reason or "Stored states" in reason
