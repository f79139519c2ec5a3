"""An examination in five sentences: one on each question, and what to do."""

from __future__ import annotations

from collections.abc import Sequence

from headscan.diagnosis.condition import CONDITIONS, Question, alarming
from headscan.diagnosis.evidence import ModelEvidence
from headscan.diagnosis.population import TOO_FEW, healthy_without
from headscan.diagnosis.result import Observation

__all__ = ["ordered", "summary"]

QUESTIONS: tuple[tuple[Question, str], ...] = (
    ("shape", "Shape"), ("cause", "Cause"), ("leak", "Leak"), ("cure", "Cure"),
)  # fmt: skip


def summary(evidence: ModelEvidence, observations: Sequence[Observation]) -> list[str]:
    """The most telling observation of each question, with its interval, what chance gives and how reference models stand;
    then the verdict. A question without any observation says why."""
    said, every = [], ordered(observations)
    for question, title in QUESTIONS:
        mine = [one for one in every if one.question == question]
        if mine:
            heading = CONDITIONS[mine[0].code].heading or title
            said.append(f"{heading}: {mine[0].sentence.rstrip('.')}{_beside(mine[0])}.")
            continue
        why = next((reason for reason in evidence.skipped if _about(question, reason)), "nothing could be examined.")
        said.append(f"{title}: {why}")
    return [*said, _verdict(every)]


def ordered(observations: Sequence[Observation]) -> list[Observation]:
    """Alarms first, those first that bring others about; then what is known of many models; then what is nearest to its
    threshold."""
    present = {one.code for one in observations if one.present and not one.known}
    follows = {code for one in present for code in CONDITIONS[one].brings if one in CONDITIONS}

    def urgency(one: Observation) -> tuple[bool, bool, bool, float]:
        distance = (
            abs(one.value - one.threshold) / max(abs(one.threshold), 1e-9) if one.value is not None else float("inf")
        )
        alarm = one.present and not one.known
        return not alarm, not one.present, alarm and one.code in follows, distance

    return sorted(observations, key=urgency)


def _verdict(every: Sequence[Observation]) -> str:
    looked = [one for one in every if not CONDITIONS[one.code].known or CONDITIONS[one.code].brings]
    alarms = [one for one in looked if one.present and not one.known]
    random = sorted(alarming({one.code: one.null for one in looked if one.null is not None}))
    beside = list[str]()
    if any(one.null is not None for one in looked):
        beside.append(f"random weights raise {len(random) or 'none'}" + f": {', '.join(random)}" * bool(random))
    if (healthy := healthy_without({one.code for one in looked})) is not None:
        many = f"all {healthy[1]}" if healthy[0] == healthy[1] else f"{healthy[0]} of {healthy[1]}"
        beside.append(f"{many} healthy models raise none")
    said = f" ({'; '.join(beside)})" if beside else ""
    if not alarms:
        return f"No alarm: none of the {len(looked)} that were looked for is raised{said}."
    first = alarms[0]
    brought = [one.code for one in alarms[1:] if one.code in CONDITIONS[first.code].brings]
    others = f"; {' and '.join(brought)} may follow from it" if brought else ""
    raised = f"{len(alarms)} of {len(looked)} alarms {'is' if len(alarms) == 1 else 'are'} raised"
    return f"First: {first.title.lower()} ({first.code}). {raised}{others}{said}. {first.advice}"


def _beside(one: Observation) -> str:
    """The number with its interval, what chance gives, and how reference models stand."""
    ends = f", 95 % {one.interval[0]:.3g} to {one.interval[1]:.3g}" if one.interval is not None else ""
    said = [f"{one.unit.split(' (')[0]} {one.value:.3g}{ends}"] if one.value is not None else []
    said += [f"{one.null_of} {one.null:.2g}"] if one.null is not None else []
    said += [one.beside] if one.beside and one.beside != TOO_FEW else []
    return f" ({'; '.join(said)})" if said else ""


def _about(question: Question, reason: str) -> bool:
    words = {"leak": "inverted", "cause": "loss", "cure": "remedy", "shape": ""}
    return words[question] in reason or "Stored states" in reason
