"""The top of a checkup's page: the models with an alarm, what was read, and the sheet."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from headscan.measures.measure import leading
from headscan.report.kit import Cell, Head, Line, Raw, Table, Term, page
from headscan.report.kit.parts import Value
from headscan.report.kit.words import named
from headscan.report.pages.checkup_sheet import SIGNS, SheetModel, SheetRow, rows_of
from headscan.report.pages.checkup_terminal import terminal_sheet
from headscan.report.pages.scan import half_angle
from headscan.run.findings import is_alarm

if TYPE_CHECKING:
    from headscan.diagnosis.result import CheckupResult, Examination, Observation


SLICE_RADIUS = 10


@page("checkup")
def head(result: CheckupResult) -> Head:
    """Return how many models have an alarm, which and of what, what was read, and the sheet."""
    has_alarm = bool(_alarms_by_model(result))
    return Head([title(result)], subtitle(result), [sheet(result)], alarm=has_alarm, listed=False)


def _alarms_by_model(result: CheckupResult) -> dict[str, list[Observation]]:
    """Return the alarms that count, by model."""
    alarms: dict[str, list[Observation]] = {}
    for finding in result.findings:
        if is_alarm(finding):
            alarms.setdefault(finding.model or "", []).append(finding)
    return alarms


def title(result: CheckupResult) -> str:
    """Return how many models have an alarm, or that too little was read to raise one."""
    alarms = _alarms_by_model(result)
    undecided = _undecided(result)
    count = len(result.examinations)
    if count == 1:
        return _title_of_one(result)
    if alarms:
        verb = "needs" if len(alarms) == 1 else "need"
        return f"{len(alarms)} of {count} models {verb} attention{_gaps(result)}"
    if len(undecided) == count:
        unit = result.examinations[0].evidence.unit
        return f"Too few {unit} to raise an alarm in any of {count} models"
    if undecided:
        unit = undecided[0].evidence.unit
        return (
            f"No alarm in {count - len(undecided)} of {count} models; too few {unit} for one in "
            "the rest"
        )
    certain = "certain " if any(finding.possible for finding in result.findings) else ""
    return f"No {certain}alarm in {count} models{_gaps(result)}"


def _title_of_one(result: CheckupResult) -> str:
    from headscan.diagnosis.summary import beyond_limit

    examined = result.examinations[0]
    alarm_count = len(_alarms_by_model(result).get(examined.model, []))
    if alarm_count:
        noun = "alarms" if alarm_count > 1 else "alarm"
        return f"{examined.model}: {alarm_count} {noun}{_gaps(result)}"
    if examined.too_few:
        beyond = beyond_limit(_possible_alarms(result, examined))
        return f"{examined.model}: too few {examined.evidence.unit} to raise an alarm; {beyond}"
    possible = _possible_alarms(result, examined)
    if possible:
        return f"{examined.model}: no certain alarm; {beyond_limit(possible)}{_gaps(result)}"
    return f"{examined.model}: no alarm {examined.scope}{_gaps(result)}"


def _gaps(result: CheckupResult) -> str:
    """Return which questions were not examined in any model: "; leak and remedy not examined"."""
    first = result.examinations[0]
    gaps = [
        gap for gap in first.gaps if all(gap in examined.gaps for examined in result.examinations)
    ]
    return f"; {_joined(gaps)} not examined" if gaps else ""


def _undecided(result: CheckupResult) -> list[Examination]:
    """Return the examinations without an alarm in which too little was read to raise one."""
    alarms = _alarms_by_model(result)
    return [
        examined
        for examined in result.examinations
        if examined.too_few and examined.model not in alarms
    ]


def _possible_alarms(result: CheckupResult, examined: Examination) -> list[Observation]:
    """Return what would be an alarm of this model, had more been read, and counts."""
    possible = [finding for finding in result.findings if finding.possible and not finding.passed]
    return [finding for finding in possible if finding.model == examined.model]


def subtitle(result: CheckupResult) -> str:
    """Return the alarms of each model and what was read."""
    return f"{_verdict(result)} {_what_was_read(result)}".strip()


def _verdict(result: CheckupResult) -> str:
    """Return the alarms of each model by name, or what is known of leaks where there is none."""
    alarms = _alarms_by_model(result)
    undecided = _undecided(result)
    several = len(result.examinations) > 1
    other_models = _without_alarm(result)
    shortages = []
    for examined in undecided:
        prefix = f"{examined.model}: " if several else ""
        shortages.append(prefix + _shortage(result, examined))
    possible = [_uncertain(result, examined, several) for examined in result.examinations]
    uncertain = " ".join(filter(None, possible))
    if not alarms and not undecided and uncertain:
        return f"{uncertain} {_leak_sentence(result)}".strip()
    if not alarms and not undecided:
        scope = " in any of them" if several else ""
        return f"None of the alarms is raised{scope}. {_leak_sentence(result)}".strip()
    if not alarms:
        sentences = [" ".join(shortages), uncertain, other_models, _leak_sentence(result)]
        return " ".join(filter(None, sentences))

    sentences = [_named_alarms(alarms, several)]
    if not several and result.examinations[0].too_few:
        shortage = result.examinations[0].shortage
        sentences.append(f"{shortage}: no other alarm on the text could be raised.")
    else:
        sentences += shortages
    return " ".join(filter(None, [*sentences, uncertain, other_models]))


def _without_alarm(result: CheckupResult) -> str:
    """Return that the other models have no alarm; empty where each has one, or may have one."""
    alarms = _alarms_by_model(result)
    clear = [
        examined
        for examined in result.examinations
        if examined.model not in alarms
        and not examined.too_few
        and not _possible_alarms(result, examined)
    ]
    if not clear:
        return ""
    return "The others: no alarm." if len(clear) > 1 else "The other: no alarm."


def _uncertain(result: CheckupResult, examined: Examination, several: bool) -> str:
    """Return the possible alarms whose interval includes the limit; empty where none are."""
    possible = [finding for finding in _possible_alarms(result, examined) if finding.sure is False]
    if not possible:
        return ""
    names = [f"{finding.title.lower()} ({finding.code})" for finding in possible]
    start = f"{examined.model}: uncertain" if several else "Uncertain"
    return f"{start}, because the 95 % interval includes the limit: {_joined(names)}."


def _named_alarms(alarms: dict[str, list[Observation]], several: bool) -> str:
    """Return the alarms of each model as a sentence."""
    texts = []
    for model, findings in alarms.items():
        text = _joined([finding.title.lower() for finding in findings])
        texts.append(f"{model}: {text}" if several else text)
    sentence = "; ".join(texts)
    if not several:
        sentence = sentence[:1].upper() + sentence[1:]
    return f"{sentence}."


def _joined(texts: list[str]) -> str:
    """Return 'a, b and c'."""
    if len(texts) == 1:
        return texts[0]
    return f"{', '.join(texts[:-1])} and {texts[-1]}"


def _shortage(result: CheckupResult, examined: Examination) -> str:
    """Say how much of a model's text was read, and which numbers lie beyond their limit."""
    possible = _possible_alarms(result, examined)
    if not possible:
        return f"{examined.shortage}."
    names = [f"{finding.title.lower()} ({finding.code})" for finding in possible]
    return f"{examined.shortage}; beyond the limit: {' and '.join(names)}."


def _what_was_read(result: CheckupResult) -> str:
    """Return the text and its tokens, and the number of reference models."""
    # This import brings all verbs with it, for which no other page shall wait.
    from headscan.diagnosis.population import compared_with

    evidence = result.examinations[0].evidence
    references = len(compared_with(evidence))
    kind = "embedding model" if evidence.embeds else "reference model"
    beside = f"compared with {references} healthy {kind}{'' if references == 1 else 's'}"
    if result.population:
        beside += f" (population {result.population})"
    text = result.protocol.text
    if text is None or not text.tokens:
        return f"Read {beside}."
    cut = f" in {text.cut}" if text.cut else ""
    return f"{text.tokens:,} {text.unit} of {named(str(text.source))}{cut}, {beside}."


def _leak_sentence(result: CheckupResult) -> str:
    """Say if states give text away, or that it was not examined.

    It is no alarm, for the states of most models do; but it is not to be taken for safe.
    """
    present = {}
    for examined in result.examinations:
        for observation in examined.observations:
            if observation.question == "leak":
                present[observation.code] = observation.present
    for finding in result.findings:
        present[finding.code] = True
    if present.get("HS301"):
        return (
            "As with most models, states give the prompt away (HS301): the text could be read "
            "back from them."
        )
    if present.get("HS302"):
        return "As with most models, the text shows through noise on the states (HS302)."
    if "HS301" in present:
        return ""
    return "Whether the states give their text away was not examined."


def sheet(result: CheckupResult) -> Raw:
    """Return the sheet as the first part of the page."""
    from headscan.diagnosis.registry import QUESTIONS

    rows = rows_of(result)
    models = []
    for index, examined in enumerate(result.examinations):
        alarms = sum(row.cells[index].state == "alarm" for row in rows)
        possible = sum(row.cells[index].state == "possible" for row in rows)
        unit = examined.evidence.unit
        models.append(SheetModel(examined.model, alarms, possible, examined.too_few, unit))
    by_code = sorted(rows, key=lambda row: row.code)
    groups = {}
    for question, question_title in QUESTIONS.items():
        group = [row for row in by_code if row.question == question]
        if group:
            groups[question_title] = group
    context = {
        "rows": rows,
        "models": models,
        "groups": groups,
        "signs": SIGNS,
        "possible": any(cell.state == "possible" for row in rows for cell in row.cells),
        "slices": [_slices(examined) for examined in result.examinations],
    }
    return Raw(
        "checkup_sheet.html.j2",
        context,
        styles=("checkup.css",),
        terminal=terminal_sheet(result, rows, models),
        table=_table(rows, models),
    )


def _table(rows: list[SheetRow], models: list[SheetModel]) -> Table:
    """Return the sheet as a table for a paper: each condition's number and level in each model."""
    columns: list[Term | str] = ["condition", "limit"]
    for model in models:
        columns += [Term(model.name, spread=True), Term("level")]
    lines = []
    for row in rows:
        cells: list[Cell | Value] = [f"{row.sign} {row.limit:g}"]
        for cell in row.cells:
            cells += [Cell(cell.value, cell.ends, cell.why), cell.word]
        lines.append(Line(f"{row.code} {row.title}", cells))
    return Table(columns, lines, "Conditions")


def _slices(examined: Examination) -> list[dict[str, object]]:
    """Return each site's average cosine as a cone of its half-angle, in order of depth."""
    rows = sorted(examined.evidence.sites, key=lambda row: row.number("depth") or 0.0)
    slices: list[dict[str, object]] = []
    for row in rows:
        field = leading(row, "average_cosine")
        angle = half_angle(row.get(field))
        if angle is None:
            continue
        radians = math.radians(angle)
        slices.append(
            {
                "site": row.text("site"),
                "cosine": row.number(field),
                "angle": angle,
                "x": round(SLICE_RADIUS * math.sin(radians), 2),
                "y": round(-SLICE_RADIUS * math.cos(radians), 2),
            }
        )
    return slices
