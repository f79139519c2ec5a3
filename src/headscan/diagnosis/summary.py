"""An examination in five sentences: one on each question, and what to do."""

from __future__ import annotations

from collections.abc import Sequence

from headscan.diagnosis.condition import Question
from headscan.diagnosis.evidence import ModelEvidence
from headscan.diagnosis.result import Observation

__all__ = ["summary"]

QUESTIONS: tuple[tuple[Question, str], ...] = (
    ("shape", "Shape"), ("cause", "Cause"), ("leak", "Leak"), ("cure", "Cure"),
)  # fmt: skip


def summary(evidence: ModelEvidence, observations: Sequence[Observation]) -> list[str]:
    """The most telling observation of each question, and the first advice. A question without any says why."""
    said = []
    for question, title in QUESTIONS:
        mine = sorted((one for one in observations if one.question == question), key=_urgency)
        if not mine:
            why = next(
                (reason for reason in evidence.skipped if _about(question, reason)), "nothing could be examined."
            )
            said.append(f"{title}: {why}")
            continue
        said.append(f"{title}: {mine[0].sentence}{_beside(mine[0])}")
    alarms = [one for one in observations if one.present and not one.known]
    if alarms:
        said.append(f"First: {min(alarms, key=_urgency).advice}")
    else:
        said.append(
            "No alarm: of " + _counted(len([one for one in observations if not one.known])) + " none is present."
        )
    return said


def _urgency(one: Observation) -> tuple[bool, bool, float]:
    """Alarms first, then what is known of many models; then whatever is nearest to its threshold."""
    distance = abs(one.value - one.threshold) / max(abs(one.threshold), 1e-9) if one.value is not None else float("inf")
    return not (one.present and not one.known), not one.present, distance


def _beside(one: Observation) -> str:
    return f" {one.beside}" if one.beside else ""


def _about(question: Question, reason: str) -> bool:
    words = {"leak": "inverted", "cause": "loss", "cure": "Stored states", "shape": ""}
    return words[question] in reason or "Stored states" in reason


def _counted(number: int) -> str:
    return f"{number} conditions that are alarms" if number != 1 else "one condition that is an alarm"
