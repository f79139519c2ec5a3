"""The result of a checkup: what it found in each source."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, ClassVar

from headscan.diagnosis.evidence import ModelEvidence
from headscan.diagnosis.registry import QUESTIONS, Question
from headscan.diagnosis.unexamined import Unexamined, count_examined
from headscan.run import DataFrame, Finding, FindingDetails, Interval, Result, Term, tidy
from headscan.scanner.cautions import FEW


@dataclass(frozen=True, kw_only=True)
class Observation(Finding):
    """A condition in one source, present or not; title, question, meaning, source and unit are
    those of the condition.
    """

    title: str
    question: Question
    meaning: str
    source: str
    unit: Annotated[str, Term("of", where="page")]
    threshold: float  # from here on (`least`), or down to here, it is named
    least: bool
    present: bool
    # beyond the limit of an alarm, and no alarm for too few tokens, or an interval that holds the
    # limit: a notice
    possible: bool = False
    advice: str  # what would help
    value: Annotated[float | None, Term("value", "What the condition is based on.")] = None
    interval: Interval | None = None  # of the value
    # whether the whole interval is on the value's side of the threshold; None without an interval
    sure: bool | None = None
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
        str | None, Term("reference", "The value among the healthy reference models.", where="page")
    ] = None

    @property
    def details(self) -> FindingDetails:
        """Return title, advice and unit, as pages show them."""
        return FindingDetails(title=self.title, advice=self.advice, unit=self.unit)


@dataclass(frozen=True, kw_only=True)
class Examination:
    """One source: the evidence, every condition, examined or not, and five sentences."""

    model: str
    evidence: ModelEvidence
    observations: list[Observation]
    unexamined: list[Unexamined] = field(default_factory=list)
    summary: list[str]
    # fewer tokens were read than an alarm on the text needs: that there is none says nothing
    too_few: bool = False

    @property
    def shortage(self) -> str:
        """Return how many tokens were read and how many an alarm needs; empty where these were
        enough.
        """
        if not self.too_few:
            return ""
        unit = self.evidence.unit
        return f"{self.evidence.count or 0:,} {unit} were read, and an alarm needs {FEW:,}"

    @property
    def scope(self) -> str:
        """Return of how many conditions there is a number: "in 10 of 15 conditions"."""
        examined, possible = count_examined(len(self.observations), self.unexamined)
        if examined == possible:
            return f"in {examined} conditions"
        return f"in {examined} of {possible} conditions"

    @property
    def gaps(self) -> list[str]:
        """Return the questions of which nothing was examined that could have been."""
        examined = {observation.question for observation in self.observations}
        gaps = []
        for question, title in QUESTIONS.items():
            could_be = any(row.option and row.question == question for row in self.unexamined)
            if question not in examined and could_be:
                gaps.append(title.lower())
        return gaps


@dataclass(frozen=True, kw_only=True, repr=False)
class CheckupResult(Result):
    """Four questions about one or more models (or stored states) on one page."""

    kind: ClassVar[str] = "checkup"

    # the conditions that are present, alarms first
    findings: Sequence[Observation] = field(default_factory=list)
    examinations: list[Examination]  # one a source, with what was looked for and not found
    failed: list[str] = field(default_factory=list)  # the codes of `--fail-on` that were found
    population: str = ""  # the edition of the reference population

    @property
    def highest_level(self) -> str:
        """Return the highest level of the findings that count; "not examined" where there is no
        alarm, and too little of a source was read to raise one.
        """
        level = super().highest_level
        if level != "alarm" and any(examination.too_few for examination in self.examinations):
            return "not examined"
        return level

    def frame(self) -> DataFrame:
        """Return a pandas table with one row for each source and condition that was looked for."""
        rows = []
        for examination in self.examinations:
            rows += [asdict(observation) for observation in examination.observations]
        return tidy(rows)
