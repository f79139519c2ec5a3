"""The result of a checkup: what it found in each source."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, ClassVar

from headscan.diagnosis.evidence import ModelEvidence
from headscan.diagnosis.registry import Question
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
    known: bool  # many healthy models have it, and it is a notice, no alarm
    possible: bool = False  # an alarm, were it not for too few tokens: it counts as a notice
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
        """Return how many tokens were read and how many an alarm needs; empty where these were
        enough.
        """
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
        """Return what a list of results says of a checkup without an alarm."""
        for examination in self.examinations:
            if examination.too_few:
                return f"too few {examination.evidence.unit} to raise an alarm"
        return "no alarm"

    def frame(self) -> DataFrame:
        """Return a pandas table with one row for each source and condition that was looked for."""
        rows = []
        for examination in self.examinations:
            rows += [asdict(observation) for observation in examination.observations]
        return tidy(rows)
