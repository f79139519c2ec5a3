"""The conditions of a checkup, and the decorator by which headscan and plug-ins declare one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from headscan.diagnosis.evidence import ModelEvidence, Stage
from headscan.run import Interval, Registry

Question = Literal["shape", "cause", "leak", "cure"]
QUESTIONS: dict[Question, str] = {
    "shape": "Shape",
    "cause": "Prediction",
    "leak": "Leak",
    "cure": "Remedy",
}
"""The title of each question."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """The number that a condition has in one source, and the sentences about it; the condition need
    not be present.
    """

    value: float
    sentence: str
    # what would help, and how much where that was measured; else the condition's `todo`
    advice: str = ""
    site: str | None = None
    interval: Interval | None = None  # 95 %
    null: float | None = None  # the value that `null_of` gives
    null_of: str = "with random weights"
    # another condition explains the number as well: no alarm, whatever the value
    notice: bool = False


@dataclass(frozen=True, kw_only=True)
class Condition:
    """A condition: a number with a threshold, its words, and the function that computes the number
    from the evidence.

    `seen(evidence, earlier)` gets the sources before this one, where they are checkpoints of one
    run, and returns None where the evidence has no such number.
    """

    title: str
    question: Question
    sentence: str  # what the number is
    meaning: str
    source: str
    unit: str
    threshold: float
    todo: str
    limits: str
    seen: Callable[[ModelEvidence, list[ModelEvidence]], Seen | None]
    least: bool = True  # it is present from the threshold on; otherwise down to the threshold
    # many healthy models have it: a notice, unless it may have brought an alarm about
    known: bool = False
    # many healthy models lie between the threshold and this value: an alarm only beyond it
    alarm: float | None = None
    unless: str = ""  # a code: where its number is there and sound, this is no alarm but a notice
    brings: tuple[str, ...] = ()  # codes of the conditions that it may bring about
    heading: str = ""  # in the summary, where that of the question does not fit
    of_text: bool = True  # it rests on the tokens that were read: no alarm on few of them
    alone: bool = False  # where it is present, no other condition is looked for
    beyond_chance: bool = False  # it is present only where the interval is above 0, too
    lacks: tuple[Stage, ...] = ()  # the stages without which there is no number
    silent: str = ""  # why there is none where nothing was skipped

    def __post_init__(self) -> None:
        # The registry tells items apart by where they are defined: that is where the function is.
        vars(self).update(__module__=self.seen.__module__, __qualname__=self.seen.__qualname__)

    def present(self, value: float, interval: Interval | None = None) -> bool:
        """Return whether the value is on the ill side of the threshold."""
        may_be_chance = interval is not None and interval[0] <= 0
        if self.beyond_chance and may_be_chance:
            return False
        return self._reaches(value, self.threshold)

    def alarms(self, value: float) -> bool:
        """Return whether the value is an alarm by itself: present, and beyond what many healthy
        models have.
        """
        if self.known or not self.present(value):
            return False
        return self.alarm is None or self._reaches(value, self.alarm)

    def _reaches(self, value: float, limit: float) -> bool:
        return value >= limit if self.least else value <= limit


CONDITIONS: Registry[Condition] = Registry(
    "condition",
    "headscan.diagnosis.conditions.shape",
    "headscan.diagnosis.conditions.cause",
    "headscan.diagnosis.conditions.leak",
    "headscan.diagnosis.conditions.remedy",
    "headscan.diagnosis.lookahead",
)
"""The conditions by code: HS1.. shape, HS2.. cause, HS3.. leak, HS4.. cure."""

Function = Callable[[ModelEvidence, list[ModelEvidence]], Seen | None]


def condition(
    code: str, question: Question, title: str, **words: Any
) -> Callable[[Function], Function]:
    """Return a decorator that registers a function under a code, with the fields of `Condition`.

    The function's docstring says which number it returns; it is shown in the documentation.
    """

    def register(function: Function) -> Function:
        CONDITIONS.add(code, Condition(question=question, title=title, seen=function, **words))
        return function

    return register


def alarming(values: Mapping[str, float]) -> list[str]:
    """Return the codes whose values are alarms: by themselves, or as known conditions that may have
    brought such an alarm about.

    >>> alarming({"HS101": 0.9, "HS102": 0.8})
    ['HS101', 'HS102']
    >>> alarming({"HS101": 0.6, "HS102": 0.8}), alarming({"HS101": 0.9, "HS201": 0.5})
    ([], [])
    """
    absent = {code for code, value in values.items() if not CONDITIONS[code].present(value)}
    direct_alarms = set()
    for code, value in values.items():
        item = CONDITIONS[code]
        if item.alarms(value) and item.unless not in absent:
            direct_alarms.add(code)

    alarms = []
    for code in values:
        item = CONDITIONS[code]
        is_cause = item.known and not direct_alarms.isdisjoint(item.brings)
        if code in direct_alarms or (is_cause and code not in absent):
            alarms.append(code)
    return alarms
