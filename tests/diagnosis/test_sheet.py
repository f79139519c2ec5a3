"""The sheet: which model is ill, of what, how sure; in a terminal and on a page."""

import re
from dataclasses import replace

import pytest
from rich.console import Console

from headscan.diagnosis.result import CheckupResult, ordered, population
from headscan.diagnosis.run import judged
from headscan.report.kit.html import html
from headscan.report.kit.register import assemble
from headscan.report.pages.checkup_sheet import SIGNS, rows_of
from headscan.run import ModelRecord, Protocol, TextRecord
from tests.diagnosis.test_conditions import HEALTHY, ILL, tried

# above its limit, and perhaps nothing
HIGH = {"cure": replace(HEALTHY.cure, rows=tried(0.03, -0.01, 0.07))}


def result_of(**models: dict) -> CheckupResult:
    examined = [judged(replace(HEALTHY, model=name, **ill), []) for name, ill in models.items()]
    found = [one for each in examined for one in ordered(each.observations) if one.present]
    protocol = Protocol(
        verb="checkup",
        settings={"context": 128},
        text=TextRecord(source="a/stories.txt", tokens=8192, windows=64),
        seed=0,
    )
    records = [ModelRecord(name=name, source=f"models/{name}") for name in models]
    return CheckupResult(
        protocol=protocol,
        models=records,
        examinations=examined,
        findings=sorted(found, key=lambda one: one.known),
    )


def printed(result: CheckupResult, **options: object) -> str:
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(result.table(**options))
    return console.export_text()


READ = {"read": replace(HEALTHY.read, recovered=1.0, interval=(0.76, 1.0))}
FOUR = {"first-model": ILL["HS201"], "second-model": {}, "third-model": HIGH, "fourth-model": READ}


def test_a_terminal_shows_four_models_on_forty_lines_alarms_first():
    said = printed(result_of(**FOUR))
    lines = said.strip().splitlines()
    assert len(lines) < 40
    assert lines[0] == "1 of 4 models needs attention"
    first = next(line for line in lines if line.lstrip().startswith("HS"))
    assert (first.split()[0], first.count("!"), first.count("·")) == ("HS201", 1, 0)
    assert "HS402 third-model: the interval holds 0" in said
    assert "next: headscan scan models/first-model --text a/stories.txt" in said
    assert len(printed(result_of(**FOUR), whole=True).splitlines()) > len(lines)


def test_more_models_than_columns_have_a_row_each():
    lines = printed(
        result_of(**{f"model-{k}": ILL["HS201"] if k == 3 else {} for k in range(9)})
    ).splitlines()
    assert [
        line.split()[0] for line in lines if "!" in line and line.lstrip().startswith("model")
    ] == ["model-3"]


def test_every_cell_says_what_was_found():
    result = result_of(**FOUR)
    seen = {(one.model, one.code): one for each in result.examinations for one in each.observations}
    for row in rows_of(result):
        for cell in row.cells:
            one = seen.get((cell.model, row.code))
            wanted = (
                "none"
                if one is None
                else "fine"
                if not one.present
                else "notice"
                if one.known
                else "alarm"
            )
            assert cell.state == wanted
            assert cell.value == (None if one is None else one.value)


@pytest.mark.parametrize("code", sorted({code for one in population() for code in one.values}))
def test_a_strip_keeps_order_and_holds_its_interval(code):
    rows = {row.code: row for row in rows_of(result_of(**FOUR))}
    if code not in rows:
        pytest.skip(f"{code} is not examined here")
    row = rows[code]
    values = sorted(
        {*row.healthy, row.limit, *(cell.value for cell in row.cells if cell.value is not None)}
    )
    places = [row.place(value) for value in values]
    assert places == sorted(places)
    assert 0 <= places[0] <= places[-1] <= 100
    for cell in row.cells:
        if cell.ends:
            assert row.place(cell.ends[0]) <= row.place(cell.value) <= row.place(cell.ends[1])


def test_the_page_opens_with_the_sheet_and_each_sign_leads_to_its_row():
    result = result_of(**FOUR)
    page = html(assemble(result))
    body = page[page.index("<body>") : page.index('id="shape"')]
    links = re.findall(
        r'<a class="(\w+)" href="#sheet-(HS\d+)"[^>]*aria-label="HS\d+ [^,]+, ([\w-]+): ([\w ]+)"',
        body,
    )
    assert len(links) == 4 * len(rows_of(result))
    assert [(code, model) for state, code, model, _ in links if state == "alarm"] == [
        ("HS201", "first-model")
    ]
    assert set(re.findall(r'href="#(HS\d+)"', page)) <= set(re.findall(r'id="(HS\d+)"', page))
    assert {code for _, code, *_ in links} <= set(re.findall(r'id="sheet-(HS\d+)"', page))
    assert body.index("1 of 4 models needs attention") < body.index(
        "first-model: predictions no better than counting."
    )
    assert (
        "8,192 tokens of stories.txt in windows of 128" in body
        or "8,192 tokens of a/stories.txt in windows of 128" in body
    )


def test_what_is_ignored_is_no_alarm_of_the_sheet():
    result = result_of(**FOUR)
    result = replace(result, findings=[replace(one, passed="ignored") for one in result.findings])
    lines = printed(result).splitlines()
    assert "No alarm" in lines[1] or "No alarm" in lines[0]
    assert not any(
        SIGNS["alarm"] + " 1" in line for line in lines if line.lstrip().startswith("HS2")
    )
