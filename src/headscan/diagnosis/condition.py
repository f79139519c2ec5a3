"""What a model may have: a code, the number that shows it, the threshold, and what would help."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from headscan.diagnosis.evidence import ModelEvidence
from headscan.run import Interval, Registry

__all__ = ["CONDITIONS", "Condition", "Question", "Seen", "alarming"]

Question = Literal["shape", "cause", "leak", "cure"]


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What a condition saw in one source, ill or not.

    Attributes:
        value: the number it rests on; interval: 95 %, where there is one; null: what chance gives, `null_of` says how.
        site: where. sentence: what it says to a reader. advice: what would help, with its effect on this model where that
            was measured.
    """

    value: float
    sentence: str
    advice: str
    site: str | None = None
    interval: Interval | None = None
    null: float | None = None
    null_of: str = "with random weights"


class Condition:
    """Subclass it in a file of headscan/diagnosis/conditions (or of a plug-in) and register it under its code.

    Attributes:
        title: its name; question: which of the four it answers; meaning: what it is, in a sentence; source: literature.
        unit: of the value, in words. threshold: from here on (`least`), or down to here (not `least`), it is named.
        known: many healthy models have it: it is stated as a notice; an alarm only where it may have brought another about.
        alarm: where between the threshold and here many healthy models are, and only beyond it is an alarm.
        brings: codes of conditions that it brings about: where both are present, it is named first.
        heading: what its sentence stands under in the summary, where the question's own says something else.
        todo: what to do about it; limits: what it does not say. Both in sentences, for the page of its code.
    """

    title: ClassVar[str]
    question: ClassVar[Question]
    meaning: ClassVar[str]
    source: ClassVar[str]
    unit: ClassVar[str]
    threshold: ClassVar[float]
    least: ClassVar[bool] = True
    known: ClassVar[bool] = False
    alarm: ClassVar[float | None] = None
    brings: ClassVar[tuple[str, ...]] = ()
    heading: ClassVar[str] = ""
    todo: ClassVar[str]
    limits: ClassVar[str]

    @abstractmethod
    def seen(self, evidence: ModelEvidence, earlier: list[ModelEvidence]) -> Seen | None:
        """What it sees in a source (`earlier`: those before it, where they are checkpoints); None where it cannot look."""

    def present(self, value: float, interval: Interval | None = None) -> bool:
        """Whether the value is on the ill side of the threshold; a subclass may ask that its interval be so, too."""
        return value >= self.threshold if self.least else value <= self.threshold

    def alarms(self, value: float) -> bool:
        """Whether it is an alarm by itself: present, and beyond what many healthy models have."""
        beyond = self.alarm is None or (value >= self.alarm if self.least else value <= self.alarm)
        return self.present(value) and not self.known and beyond


CONDITIONS: Registry[type[Condition]] = Registry("condition", "headscan.diagnosis.conditions")
"""Every condition by its code: HS1.. shape, HS2.. cause, HS3.. leak, HS4.. cure."""


def alarming(values: Mapping[str, float]) -> list[str]:
    """Which of these numbers are alarms: by themselves; or known of healthy models, and able to bring such a one about.

    >>> alarming({"HS101": 0.9, "HS102": 0.8}), alarming({"HS101": 0.6, "HS102": 0.8})
    (['HS101', 'HS102'], [])
    """
    kinds = {code: CONDITIONS[code]() for code in values}
    plain = {code for code, kind in kinds.items() if kind.alarms(values[code])}
    return [
        code
        for code, kind in kinds.items()
        if code in plain or (kind.known and kind.present(values[code]) and plain & set(kind.brings))
    ]
