"""The sheet of a checkup as data: each condition in all models, beside its reference models."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headscan.diagnosis.result import CheckupResult, Examination, Observation

SIGNS = {"alarm": "!", "possible": "?", "notice": "·", "fine": "+", "none": "–"}
"""The sign of each state of a cell, the most urgent state first."""
STATE_WORDS = {
    "alarm": "alarm",
    "possible": "possible alarm",
    "notice": "notice",
    "fine": "fine",
    "none": "not examined",
}
LARGEST_LINEAR_RATIO = 30.0
"""Numbers that differ by more than this factor are shown on a logarithmic axis."""
STRIP_MARGIN = 4.0  # per cent, at both ends of a strip


@dataclass(frozen=True)
class SheetCell:
    """A model's number of a condition.

    `state` is a key of `SIGNS`; `why` says what the number alone does not.
    """

    model: str
    state: str
    value: float | None = None
    ends: tuple[float, float] | None = None
    null: float | None = None
    why: str = ""

    @property
    def sign(self) -> str:
        """Return the sign of the state."""
        return SIGNS[self.state]

    @property
    def word(self) -> str:
        """Return the word for the state."""
        return STATE_WORDS[self.state]


@dataclass(frozen=True)
class SheetModel:
    """A column of the sheet: a model with its numbers of alarms and of possible alarms.

    `too_few`: too little was read for an alarm, of what `unit` says.
    """

    name: str
    alarms: int
    possible: int
    too_few: bool
    unit: str = "tokens"

    @property
    def flag(self) -> str:
        """Return the class of the badge: red, grey or green."""
        if self.alarms:
            return "alarm"
        return "few" if self.too_few or self.possible else "fine"

    @property
    def words(self) -> str:
        """Return the text of the badge."""
        if self.alarms:
            return f"{self.alarms} alarms" if self.alarms > 1 else "1 alarm"
        if self.too_few:
            return f"too few {self.unit}"
        return f"{self.possible} possible" if self.possible else "no alarm"


@dataclass(frozen=True)
class SheetRow:
    """A condition in all models, with its numbers in healthy and in ill reference models."""

    code: str
    title: str
    unit: str
    question: str
    limit: float
    least: bool
    cells: list[SheetCell]
    healthy: list[float]
    ill: list[float]

    @property
    def sign(self) -> str:
        """Return the sign between a number and its limit, where the number is beyond it."""
        return "≥" if self.least else "≤"

    @property
    def quiet(self) -> bool:
        """Tell whether no model has a finding here: such a row takes one line."""
        return all(cell.state in ("fine", "none") for cell in self.cells)

    def axis(self) -> tuple[float, float, bool]:
        """Return the ends of the strips, and whether they are logarithmic.

        Ill reference models beyond the ends are shown at the end.
        """
        numbers: list[float | None] = [*self.healthy, self.limit]
        for cell in self.cells:
            numbers += [cell.value, cell.null, *(cell.ends or ())]
        shown = [number for number in numbers if number is not None and math.isfinite(number)]
        low = min(shown)
        high = max(shown)
        if low > 0 and high > LARGEST_LINEAR_RATIO * low:
            return math.log(low), math.log(high), True
        return low, high, False

    def place(self, value: float) -> float:
        """Return the position of a number on the strip, in per cent, inside its ends."""
        low, high, is_log = self.axis()
        position = value
        if is_log:
            position = math.log(value) if value > 0 else low
        share = (position - low) / (high - low) if high > low else 0.5
        percent = STRIP_MARGIN + (100 - 2 * STRIP_MARGIN) * share
        return round(min(100.0, max(0.0, percent)), 2)


def rows_of(result: CheckupResult) -> list[SheetRow]:
    """Return the conditions that were looked for in any model, or could have been.

    Alarms come first, the most urgent first, then notices, then the others, by code; those that
    were not examined come last.
    """
    codes = set()
    for examined in result.examinations:
        codes |= {observation.code for observation in examined.observations}
        codes |= {row.code for row in examined.unexamined if row.option}
    rows = [_row(result, code) for code in sorted(codes)]
    states = list(SIGNS)
    codes_by_urgency = [finding.code for finding in result.findings]

    def urgency(row: SheetRow) -> tuple[int, int]:
        worst = min(states.index(cell.state) for cell in row.cells)
        is_alarm = worst == states.index("alarm")
        if is_alarm and row.code in codes_by_urgency:
            return worst, codes_by_urgency.index(row.code)
        return worst, 0

    return sorted(rows, key=urgency)


def _row(result: CheckupResult, code: str) -> SheetRow:
    from headscan.diagnosis.population import compared_with, population
    from headscan.diagnosis.registry import CONDITIONS

    passed = {finding.model: finding.passed for finding in result.findings if finding.code == code}
    observations = []
    cells = []
    for examined in result.examinations:
        observation = _observation(examined, code)
        if observation is None:
            cells.append(SheetCell(examined.model, "none", why=_absence(examined, code)))
        else:
            observations.append(observation)
            cells.append(_cell(examined.model, observation, passed.get(examined.model, "")))
    first = observations[0] if observations else CONDITIONS[code]
    healthy = compared_with(result.examinations[0].evidence)
    ill = [reference for reference in population() if reference.kind == "ill"]
    return SheetRow(
        code=code,
        title=first.title,
        unit=first.unit,
        question=first.question,
        limit=first.threshold if first.alarm is None else first.alarm,
        least=first.least,
        cells=cells,
        healthy=[reference.values[code] for reference in healthy if code in reference.values],
        ill=[reference.values[code] for reference in ill if code in reference.values],
    )


def _observation(examined: Examination, code: str) -> Observation | None:
    """Return the last observation of a condition in a model."""
    matching = [observation for observation in examined.observations if observation.code == code]
    return matching[-1] if matching else None


def _cell(model: str, observation: Observation, passed: str) -> SheetCell:
    """Return a model's cell; `passed` says why its finding does not count, if it does not."""
    state: str = observation.level
    if passed and state == "alarm":
        state = "notice"
    elif observation.possible and not passed:
        state = "possible"
    has_random_null = observation.null_of == "with random weights"
    return SheetCell(
        model=model,
        state=state,
        value=observation.value,
        ends=observation.interval,
        null=observation.null if has_random_null else None,
        why=_remark(observation, state, passed),
    )


def _remark(observation: Observation, state: str, passed: str) -> str:
    """Say what the number alone does not say."""
    if passed == "known":
        return "in the baseline"
    if passed == "ignored":
        return "ignored"
    if state == "possible":
        uncertain = observation.sure is False
        return "uncertain: the 95 % interval includes the limit" if uncertain else "too little text"
    if _is_beyond(observation) and not observation.present:
        return "not significant"
    return ""


def _is_beyond(observation: Observation) -> bool:
    """Tell whether the value is beyond the threshold."""
    if observation.value is None:
        return False
    if observation.least:
        return observation.value >= observation.threshold
    return observation.value <= observation.threshold


def _absence(examined: Examination, code: str) -> str:
    """Return why a model has no number of a condition, and what would examine it."""
    for row in examined.unexamined:
        if row.code == code:
            return f"{row.reason}; {row.option} examines it" if row.option else row.reason
    return ""
