"""An examination in five sentences: one on each question, and what to do."""

from __future__ import annotations

from collections.abc import Sequence

from headscan.diagnosis.condition import CONDITIONS, Question, alarming
from headscan.diagnosis.evidence import ModelEvidence
from headscan.diagnosis.population import TOO_FEW, healthy_without
from headscan.diagnosis.result import Observation

__all__ = ["ordered", "summary"]

QUESTIONS: tuple[tuple[Question, str], ...] = (
    ("shape", "Shape"), ("cause", "Prediction"), ("leak", "Leak"), ("cure", "Remedy"),
)  # fmt: skip


def summary(evidence: ModelEvidence, observations: Sequence[Observation]) -> list[str]:
    """The most telling observation of each question, whether it is an alarm, a notice or neither, its interval, what chance gives
    and how reference models stand; then the verdict. A question without any observation says why."""
    said, every = [], ordered(observations)
    for question, title in QUESTIONS:
        mine = [one for one in every if one.question == question]
        if mine:
            heading = CONDITIONS[mine[0].code].heading or title
            said.append(f"{heading}, {_found(mine[0])}: {mine[0].sentence.rstrip('.')}{_beside(mine[0])}.")
            continue
        why = next((reason for reason in evidence.skipped if _about(question, reason)), "nothing could be examined.")
        said.append(f"{title}: {why}")
    return [*said, _verdict(every)]


def ordered(observations: Sequence[Observation]) -> list[Observation]:
    """Alarms first, those first that bring others about; then notices, by code; then what is nearest to its threshold."""
    present = {one.code for one in observations if one.present and not one.known}
    follows = {code for one in present for code in CONDITIONS[one].brings if one in CONDITIONS}

    def urgency(one: Observation) -> tuple[bool, bool, bool, float, str]:
        distance = (
            abs(one.value - one.threshold) / max(abs(one.threshold), 1e-9) if one.value is not None else float("inf")
        )
        alarm = one.present and not one.known
        notice = one.present and not alarm
        return not alarm, not one.present, alarm and one.code in follows, 0.0 if notice else distance, one.code

    return sorted(observations, key=urgency)


def _found(one: Observation) -> str:
    return f"{'notice' if one.known else 'alarm'} {one.code} ({one.title.lower()})" if one.present else "no finding"


def _verdict(every: Sequence[Observation]) -> str:
    looked = [one for one in every if not CONDITIONS[one.code].known or CONDITIONS[one.code].brings]
    alarms = [one for one in looked if one.present and not one.known]
    beside = _elsewhere(looked)
    if not alarms:
        return (
            f"No alarm: none of the {len(looked)} alarms that were looked for is raised{'; ' * bool(beside)}{beside}."
        )
    first = alarms[0]
    follow = [one for one in alarms[1:] if one.code in CONDITIONS[first.code].brings]
    rest = [one for one in alarms[1:] if one not in follow]
    more = f"; {_named(follow)} may follow from it" * bool(follow) + f"; {_named(rest)} as well" * bool(rest)
    raised = (
        f"{len(alarms)} of {len(looked)} alarms {'is' if len(alarms) == 1 else 'are'} raised: {_named([first])}{more}."
    )
    advice = first.advice if first.advice.endswith(".") else f"{first.advice}."
    return f"What to do first: {advice} {raised}" + f" {beside[0].upper()}{beside[1:]}." * bool(beside)


def _elsewhere(looked: Sequence[Observation]) -> str:
    """How many of these alarms reference models raise, and which of them the architecture raises without its training."""
    codes, said = {one.code for one in looked}, list[str]()
    if (healthy := healthy_without(codes)) is not None:
        many = f"all {healthy[1]}" if healthy[0] == healthy[1] else f"{healthy[0]} of {healthy[1]}"
        said.append(f"{many} healthy reference models raise none")
    if nulls := {one.code: one.null for one in looked if one.null is not None}:
        random = [one for one in looked if one.code in alarming(nulls)]
        which = f"{len(random)}: {_named(random)}" if random else "none"
        said.append(f"the same architecture with random weights raises {which}")
    return "; ".join(said)


def _named(some: Sequence[Observation]) -> str:
    """Conditions by name and code."""
    names = [f"{one.title.lower()} ({one.code})" for one in some]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _beside(one: Observation) -> str:
    """The number with its interval, what chance gives, and how reference models stand."""
    ends = f", 95% interval {one.interval[0]:.3g} to {one.interval[1]:.3g}" if one.interval is not None else ""
    said = [f"{one.unit.split(' (')[0]} {one.value:.3g}{ends}"] if one.value is not None else []
    said += [f"{one.null_of} {one.null:.2g}"] if one.null is not None else []
    said += [one.beside] if one.beside and one.beside != TOO_FEW else []
    return f" ({'; '.join(said)})" if said else ""


def _about(question: Question, reason: str) -> bool:
    words = {"leak": "inverted", "cause": "loss", "cure": "remedy", "shape": ""}
    return words[question] in reason or "Stored states" in reason
