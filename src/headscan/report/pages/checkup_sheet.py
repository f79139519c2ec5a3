"""The sheet of a checkup: models by conditions at a glance, and each number beside its limit and
the reference models.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from headscan.measures.measure import leading
from headscan.report.kit import Raw
from headscan.report.kit.terminal import LEVELS
from headscan.report.kit.words import clean, number
from headscan.report.pages.scan import half_angle
from headscan.scanner.cautions import FEW

if TYPE_CHECKING:
    from headscan.diagnosis.registry import Question
    from headscan.diagnosis.result import CheckupResult, Examination, Observation

SIGNS = {"alarm": "!", "possible": "?", "notice": "·", "fine": "+", "none": "–"}
STYLES = {
    "alarm": LEVELS["alert"][1],
    "possible": "bold",
    "notice": LEVELS["notice"][1],
    "fine": "",
    "none": "dim",
}
WORDS = {
    "alarm": "alarm",
    "possible": "too few tokens",
    "notice": "notice",
    "fine": "no finding",
    "none": "not examined",
}
QUESTIONS: dict[Question, str] = {
    "shape": "Shape",
    "cause": "Prediction",
    "leak": "Leak",
    "cure": "Remedy",
}
WIDE = 5  # models beside one another in a terminal
SPREAD = 30.0  # numbers that differ by more than this factor are shown on a logarithmic axis


@dataclass(frozen=True)
class SheetCell:
    """One model's number of a condition: `state` is a key of `SIGNS`; `why` says what the number
    alone does not.
    """

    model: str
    state: str
    value: float | None = None
    ends: tuple[float, float] | None = None
    null: float | None = None
    why: str = ""

    @property
    def word(self) -> str:
        return WORDS[self.state]


@dataclass(frozen=True)
class SheetModel:
    """A column of the sheet: a model, how many alarms it has, and whether too little was read for
    more.
    """

    name: str
    alarms: int
    too_few: bool
    unit: str = "tokens"  # of what was read

    @property
    def flag(self) -> str:
        """The class of its badge: red, grey or green."""
        if self.alarms:
            return "alarm"
        return "few" if self.too_few else "fine"

    @property
    def words(self) -> str:
        """What its badge says."""
        if self.alarms:
            return f"{self.alarms} alarm{'s' * (self.alarms > 1)}"
        return f"too few {self.unit}" if self.too_few else "no alarm"


@dataclass(frozen=True)
class SheetRow:
    """A condition in all models. `reference` are the numbers of healthy and of ill reference
    models.
    """

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
        return "≥" if self.least else "≤"

    @property
    def quiet(self) -> bool:
        """Whether no model has a finding here: such a row takes one line."""
        return all(cell.state in ("fine", "none") for cell in self.cells)

    def axis(self) -> tuple[float, float, bool]:
        """The ends of the strips, and whether they are logarithmic; ill reference models beyond
        stand at the end.
        """
        own = [
            value
            for cell in self.cells
            for value in (cell.value, cell.null, *(cell.ends or ()))
            if value is not None
        ]
        shown = [value for value in [*own, *self.healthy, self.limit] if math.isfinite(value)]
        low = min(shown)
        high = max(shown)
        log = low > 0 and high > SPREAD * low
        ends = (math.log(low), math.log(high)) if log else (low, high)
        return *ends, log

    def place(self, value: float) -> float:
        """Where a number stands on the strip, in per cent, inside its ends."""
        low, high, log = self.axis()
        at = (math.log(value) if value > 0 else low) if log else value
        return round(
            min(100.0, max(0.0, 4 + 92 * ((at - low) / (high - low) if high > low else 0.5))), 2
        )


def rows_of(result: CheckupResult) -> list[SheetRow]:
    """The conditions looked for in any model: alarms, the most urgent first, then notices, then the
    others, by code.
    """
    from headscan.diagnosis.result import population

    passed = {(one.model, one.code): one.passed for one in result.findings}
    seen = {(one.model, one.code): one for each in result.examinations for one in each.observations}
    rows = []
    for code in sorted({code for _, code in seen}):
        models = [each.model for each in result.examinations]
        keyed = [(each, (each.model, code)) for each in result.examinations]
        cells = [_cell(each, seen.get(key), passed.get(key, ""), code) for each, key in keyed]
        one = next(seen[model, code] for model in models if (model, code) in seen)
        known = [(other.kind, other.values[code]) for other in population() if code in other.values]
        healthy, ill = (
            [value for kind, value in known if kind == wanted] for wanted in ("healthy", "ill")
        )
        limit = one.threshold if one.alarm is None else one.alarm
        rows.append(
            SheetRow(
                code,
                one.title,
                one.unit,
                QUESTIONS[one.question],
                limit,
                one.least,
                cells,
                healthy,
                ill,
            )
        )
    order = list(SIGNS)
    urgent = [one.code for one in result.findings]

    def urgency(row: SheetRow) -> tuple[int, int]:
        worst = min(order.index(cell.state) for cell in row.cells if cell.state != "none")
        return worst, urgent.index(row.code) if not worst and row.code in urgent else 0

    return sorted(rows, key=urgency)


def _cell(examined: Examination, one: Observation | None, passed: str, code: str) -> SheetCell:
    if one is None:
        return SheetCell(examined.model, "none", why=_absent(examined, code))
    alarm = one.present and not one.known and not passed
    possible = one.possible and not passed
    state = "alarm" if alarm else "possible" if possible else "notice" if one.present else "fine"
    null = one.null if one.null_of == "with random weights" else None
    beyond = one.value is not None and (
        one.value >= one.threshold if one.least else one.value <= one.threshold
    )
    why = {"known": "in the baseline", "ignored": "ignored"}.get(passed, "")
    why = why or (
        "not certain, the interval holds the limit" if alarm and one.sure is False else ""
    )
    why = why or ("the interval holds 0" if beyond and not one.present else "")
    return SheetCell(examined.model, state, one.value, one.interval, null, why)


def _absent(examined: Examination, code: str) -> str:
    """Why a model has no number of a condition."""
    from headscan.diagnosis.registry import CONDITIONS

    known = CONDITIONS.get(code)
    if known is None:  # a plug-in that had it may be gone
        return ""
    reasons = [
        reason
        for reason in examined.evidence.skipped
        if any(word in reason for word in (*known.lacks, "Stored states"))
    ]
    return next((reason.partition(": ")[2].rstrip(".") for reason in reasons), known.silent)


def sheet(result: CheckupResult) -> Raw:
    """The sheet as the first part of the page."""
    rows = rows_of(result)
    models = []
    for place, each in enumerate(result.examinations):
        alarms = sum(row.cells[place].state == "alarm" for row in rows)
        models.append(SheetModel(each.model, alarms, each.too_few, each.evidence.unit))
    by_code = sorted(rows, key=lambda row: row.code)
    groups = {
        question: [row for row in by_code if row.question == question]
        for question in QUESTIONS.values()
    }
    context = {
        "rows": rows,
        "models": models,
        "groups": {name: group for name, group in groups.items() if group},
        "signs": SIGNS,
        "possible": any(cell.state == "possible" for row in rows for cell in row.cells),
        "slices": [_slices(each) for each in result.examinations],
    }
    return Raw(
        "checkup_sheet.html.j2",
        context,
        styles=("checkup.css",),
        terminal=_terminal(result, rows, models),
    )


def _slices(examined: Examination) -> list[dict[str, object]]:
    """The CAT picture of one model: each site's average cosine as a cone of its half-angle, from
    the embedding to the norm.
    """
    shown: list[dict[str, object]] = []
    for row in sorted(examined.evidence.sites, key=lambda row: row.number("depth") or 0.0):
        if (angle := half_angle(row.get(leading(row, "average_cosine")))) is not None:
            sine = math.sin(math.radians(angle))
            cosine = math.cos(math.radians(angle))
            ends = {"x": round(10 * sine, 2), "y": round(-10 * cosine, 2)}
            shown.append(
                {
                    "site": row.text("site"),
                    "cosine": row.number(leading(row, "average_cosine")),
                    "angle": angle,
                    **ends,
                }
            )
    return shown


# ---- The same in a terminal.


def _terminal(
    result: CheckupResult, rows: Sequence[SheetRow], models: Sequence[SheetModel]
) -> RenderableType:
    parts: list[RenderableType] = [
        _columns(rows, models) if len(models) <= WIDE else _grid(rows, models)
    ]
    possible = any(cell.state == "possible" for row in rows for cell in row.cells)
    few = "? beyond the limit, on too few tokens for an alarm  " if possible else ""
    parts.append(Text(f"! alarm  {few}· notice: no fault by itself  – not examined", style="dim"))
    reasons: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for cell in row.cells:
            if cell.why:
                reasons.setdefault((row.code, cell.why), []).append(clean(cell.model))
    parts += [
        Text(f"{code} {', '.join(names)}: {why}", style="dim")
        for (code, why), names in reasons.items()
    ]
    for one in result.examinations:
        alarm = next(
            (
                each
                for each in result.findings
                if each.model == one.model and not each.known and not each.passed
            ),
            None,
        )
        if alarm is not None:
            parts.append(
                Text(f"{clean(one.model)}, first: ", style="bold").append(
                    clean(alarm.advice), style="not bold"
                )
            )
    return Group(*parts, Text(next_command(result), style="dim"))


def _columns(rows: Sequence[SheetRow], models: Sequence[SheetModel]) -> RichTable:
    grid = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), collapse_padding=True)
    grid.add_column(Text("looked for"), overflow="fold")
    grid.add_column(Text("limit"), no_wrap=True)
    for model in models:
        grid.add_column(Text("\n".join(wrap(clean(model.name), 12))), no_wrap=True)
    for row in rows:
        signs = [SIGNS[cell.state] if cell.state != "fine" else " " for cell in row.cells]
        numbers = [number(cell.value) if cell.value is not None else "" for cell in row.cells]
        cells = [
            Text(f"{a} {b}", style=STYLES[c.state])
            for a, b, c in zip(signs, numbers, row.cells, strict=True)
        ]
        grid.add_row(
            Text(f"{row.code} {row.title}"), Text(f"{row.sign} {row.limit:g}", style="dim"), *cells
        )
    return grid


def _grid(rows: Sequence[SheetRow], models: Sequence[SheetModel]) -> RichTable:
    """A row a model and a column a condition, for more models than stand beside one another."""
    grid = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 0), collapse_padding=True)
    grid.add_column(Text("model"), overflow="fold")
    ordered = sorted(rows, key=lambda row: row.code)
    for row in ordered:
        grid.add_column(Text(row.code.removeprefix("HS")), no_wrap=True, min_width=4)
    for place, model in enumerate(models):
        states = [row.cells[place].state for row in ordered]
        grid.add_row(
            Text(clean(model.name)), *(Text(SIGNS[state], style=STYLES[state]) for state in states)
        )
    return grid


def next_command(result: CheckupResult) -> str:
    """What looks closer: at the layers of the first model with an alarm, else more text where too
    little was read for one, else at what its states give away.
    """
    ill = next((one.model for one in result.findings if not one.known and not one.passed), None)
    short = (
        next((one.model for one in result.examinations if one.too_few), None)
        if ill is None
        else None
    )
    model = ill or short or result.examinations[0].model
    record = next((one for one in result.models if one.name == model), None)
    text = result.protocol.text.source if result.protocol.text is not None else None
    if record is None or not text:
        return ""
    follow = "scan" if ill else "checkup" if short else "privacy"
    words = ["headscan", follow, record.source or model, "--text", str(text)]
    if short:
        limited = result.protocol.settings.get("max_tokens") is not None
        words += ["--max-tokens", f"{2 * FEW}"] if limited else ["--budget", "10m"]
    return f"next: {clean(shlex.join(words))}"
