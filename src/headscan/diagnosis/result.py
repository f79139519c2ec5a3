"""What a checkup found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, ClassVar

from headscan.diagnosis.condition import Question
from headscan.diagnosis.evidence import ModelEvidence
from headscan.run import Finding, Interval, Result

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["CheckupResult", "Examination", "Observation"]


@dataclass(frozen=True, kw_only=True)
class Observation(Finding):
    """A condition as it was found in one source, present or not.

    Attributes:
        title, question, meaning, source, unit: the condition's words.
        value, interval: its number, and 95 %; null: what `null_of` (random weights, guessing, ...) gives.
        threshold: from here on (`least`), or down to here, it is named; present: whether it is.
        sure: whether the whole interval is on the value's side of the threshold; None without an interval.
        known: many healthy models have it, and it is a notice, no alarm; alarm: from here on it is one, where that is not the
            threshold.
        advice: what would help. beside: how the value stands among the reference models, in words.
    """

    title: str
    question: Question
    meaning: str
    source: str
    unit: str
    threshold: float
    least: bool
    present: bool
    known: bool
    advice: str
    interval: Interval | None = None
    sure: bool | None = None
    null: float | None = None
    alarm: float | None = None
    null_of: str = "with random weights"
    beside: str | None = None


@dataclass(frozen=True, kw_only=True)
class Examination:
    """One source: the evidence, every condition that could be looked for, and five sentences."""

    model: str
    evidence: ModelEvidence
    observations: list[Observation]
    summary: list[str]


@dataclass(frozen=True, kw_only=True, repr=False)
class CheckupResult(Result):
    """Four questions about one or more models (or stored states) on one page.

    Attributes:
        findings: the conditions that are present, alarms first.
        examinations: one a source, with what was looked for and not found.
        failed: the codes of `--fail-on` that were found.
    """

    kind: ClassVar[str] = "checkup"

    findings: Sequence[Observation] = field(default_factory=list)
    examinations: list[Examination]
    failed: list[str] = field(default_factory=list)

    def frame(self) -> pd.DataFrame:
        """A pandas table: one row a source and condition that was looked for."""
        import pandas as pd

        return pd.DataFrame([asdict(one) for each in self.examinations for one in each.observations])
