"""The sheet of a checkup in a terminal."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from textwrap import wrap
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from headscan.report.kit.terminal import LEVELS, plain_grid
from headscan.report.kit.words import clean, number
from headscan.run.findings import is_alarm
from headscan.scanner.cautions import FEW

if TYPE_CHECKING:
    from headscan.diagnosis.result import CheckupResult
    from headscan.report.pages.checkup_sheet import SheetCell, SheetModel, SheetRow

STYLES = {
    "alarm": LEVELS["alarm"][1],
    "possible": "bold",
    "notice": LEVELS["notice"][1],
    "fine": "",
    "none": "dim",
}
"""The style of each state of a cell."""
MOST_COLUMNS = 5  # models beside one another
NAME_WIDTH = 12


def terminal_sheet(
    result: CheckupResult, rows: Sequence[SheetRow], models: Sequence[SheetModel]
) -> RenderableType:
    """Return the sheet, its key, remarks on cells, the first advice, and the next command."""
    grid = _columns(rows, models) if len(models) <= MOST_COLUMNS else _rows(rows, models)
    return Group(
        grid,
        _key(rows),
        *_remarks(rows),
        *_first_advice(result),
        Text(next_command(result), style="dim"),
    )


def _key(rows: Sequence[SheetRow]) -> Text:
    possible = ""
    if any(cell.state == "possible" for row in rows for cell in row.cells):
        possible = "? possible alarm  "
    sentence = f"! alarm  {possible}· notice: no fault by itself  – not examined"
    return Text(sentence, style="dim")


def _remarks(rows: Sequence[SheetRow]) -> list[Text]:
    """Return what the numbers alone do not say, once for all models and codes it is true of."""
    models: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for cell in row.cells:
            if cell.why:
                models.setdefault((row.code, cell.why), []).append(clean(cell.model))
    codes: dict[tuple[str, str], list[str]] = {}
    for (code, why), names in models.items():
        codes.setdefault((", ".join(names), why), []).append(code)
    return [
        Text(f"{', '.join(sorted(listed))} {names}: {why}", style="dim")
        for (names, why), listed in codes.items()
    ]


def _first_advice(result: CheckupResult) -> list[Text]:
    """Return the advice on the first alarm of each model."""
    lines = []
    for examined in result.examinations:
        for finding in result.findings:
            if finding.model == examined.model and is_alarm(finding):
                line = Text(f"{clean(examined.model)}, first: ", style="bold")
                lines.append(line.append(clean(finding.advice), style="not bold"))
                break
    return lines


def _columns(rows: Sequence[SheetRow], models: Sequence[SheetModel]) -> RichTable:
    """Return a row a condition and a column a model."""
    grid = plain_grid()
    grid.add_column(Text("condition"), overflow="fold")
    grid.add_column(Text("limit"), no_wrap=True)
    for model in models:
        grid.add_column(Text("\n".join(wrap(clean(model.name), NAME_WIDTH))), no_wrap=True)
    for row in rows:
        name = Text(f"{row.code} {row.title}")
        limit = Text(f"{row.sign} {row.limit:g}", style="dim")
        grid.add_row(name, limit, *map(_cell, row.cells))
    return grid


def _cell(cell: SheetCell) -> Text:
    sign = " " if cell.state == "fine" else cell.sign
    value = "" if cell.value is None else number(cell.value)
    return Text(f"{sign} {value}", style=STYLES[cell.state])


def _rows(rows: Sequence[SheetRow], models: Sequence[SheetModel]) -> RichTable:
    """Return a row a model and a column a condition, for more models than fit as columns."""
    grid = plain_grid(gap=0)
    grid.add_column(Text("model"), overflow="fold")
    by_code = sorted(rows, key=lambda row: row.code)
    for row in by_code:
        grid.add_column(Text(row.code.removeprefix("HS")), no_wrap=True, min_width=4)
    for index, model in enumerate(models):
        cells = [row.cells[index] for row in by_code]
        signs = [Text(cell.sign, style=STYLES[cell.state]) for cell in cells]
        grid.add_row(Text(clean(model.name)), *signs)
    return grid


def next_command(result: CheckupResult) -> str:
    """Return the command that looks closer.

    It scans the first model with an alarm; else it reads more text where too little was read for an
    alarm; else it looks at what the states of the first model give away. Stored states are scanned:
    there is no text to read more of.
    """
    alarms = [finding for finding in result.findings if is_alarm(finding)]
    short = [examined for examined in result.examinations if examined.too_few]
    if alarms:
        verb = "scan"
        model = alarms[0].model
    elif short:
        verb = "checkup"
        model = short[0].model
    else:
        verb = "privacy"
        model = None
    model = model or result.examinations[0].model
    source = _source_of(result, model)
    if source is not None and _is_stored(result, model):
        return f"next: {clean(shlex.join(['headscan', 'scan', source]))}"
    text = result.protocol.text.source if result.protocol.text is not None else None
    if source is None or not text:
        return ""
    words = ["headscan", verb, source, "--text", str(text)]
    if verb == "checkup":
        words += _more_text(result)
    return f"next: {clean(shlex.join(words))}"


def _source_of(result: CheckupResult, model: str) -> str | None:
    """Return where a model came from; None where the result has no record of it."""
    for record in result.models:
        if record.name == model:
            return record.source or model
    return None


def _is_stored(result: CheckupResult, model: str) -> bool:
    """Tell whether a source is stored states, of which only the shape was examined."""
    return any(
        skipped.stage == "states"
        for examined in result.examinations
        for skipped in examined.evidence.skipped
        if examined.model == model
    )


def _more_text(result: CheckupResult) -> list[str]:
    """Return the option by which a checkup reads more text."""
    unit = result.examinations[0].evidence.unit
    if unit == "sentences":
        return ["--documents", "lines", "--budget", "full"]
    if result.protocol.settings.get("max_tokens") is not None:
        return ["--max-tokens", f"{2 * FEW}"]
    return ["--budget", "10m"]
