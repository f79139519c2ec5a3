"""The sheet: which model is ill, of what, how sure; in a terminal and on a page."""

import re
from dataclasses import replace

import pytest
from rich.console import Console

from headscan.diagnosis.measurements import out_of_time
from headscan.diagnosis.population import population
from headscan.diagnosis.publish import markdown
from headscan.diagnosis.result import CheckupResult
from headscan.diagnosis.run import judged
from headscan.diagnosis.summary import ordered
from headscan.report.kit.html import html
from headscan.report.kit.register import assemble
from headscan.report.pages.checkup_sheet import SIGNS, rows_of
from headscan.run import ModelRecord, Protocol, TextRecord
from tests.diagnosis.test_conditions import HEALTHY, ILL, loss, tried

# above its limit, and perhaps nothing
HIGH = {"cure": replace(HEALTHY.cure, rows=tried(0.03, -0.01, 0.07))}


def result_of(**models: dict) -> CheckupResult:
    examined = [judged(replace(HEALTHY, model=name, **ill), []) for name, ill in models.items()]
    present = [
        observation
        for examination in examined
        for observation in ordered(examination.observations)
        if observation.present
    ]
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
        findings=sorted(present, key=lambda observation: observation.level != "alarm"),
    )


def printed(result: CheckupResult, **options: object) -> str:
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(result.table(**options))
    return console.export_text()


READ = {"read": replace(HEALTHY.read, recovered=1.0, interval=(0.76, 1.0))}
FOUR = {"first-model": ILL["HS201"], "second-model": {}, "third-model": HIGH, "fourth-model": READ}


def test_a_terminal_shows_four_models_on_forty_lines_alarms_first():
    text = printed(result_of(**FOUR))
    lines = text.strip().splitlines()
    assert len(lines) < 40
    assert lines[0] == "1 of 4 models needs attention"
    first = next(line for line in lines if line.lstrip().startswith("HS"))
    assert (first.split()[0], first.count("!"), first.count("·")) == ("HS201", 1, 0)
    assert "HS402 third-model: not significant" in text
    assert "next: headscan scan models/first-model --text a/stories.txt" in text
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
    observations = {
        (observation.model, observation.code): observation
        for examination in result.examinations
        for observation in examination.observations
    }
    for row in rows_of(result):
        for cell in row.cells:
            observation = observations.get((cell.model, row.code))
            if observation is None:
                assert (cell.state, cell.value) == ("none", None)
                continue
            expected = "possible" if observation.possible else observation.level
            assert (cell.state, cell.value) == (expected, observation.value)


@pytest.mark.parametrize("code", sorted({code for row in population() for code in row.values}))
def test_a_strip_keeps_order_and_holds_its_interval(code):
    rows = {row.code: row for row in rows_of(result_of(**FOUR))}
    if code not in rows:
        pytest.skip(f"{code} is not examined here")
    row = rows[code]
    values = sorted(
        {*row.healthy, row.limit, *(cell.value for cell in row.cells if cell.value is not None)}
    )
    positions = [row.place(value) for value in values]
    assert positions == sorted(positions)
    assert 0 <= positions[0] <= positions[-1] <= 100
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
    result = replace(
        result, findings=[replace(finding, passed="ignored") for finding in result.findings]
    )
    lines = printed(result).splitlines()
    assert "No alarm" in lines[1] or "No alarm" in lines[0]
    assert not any(
        SIGNS["alarm"] + " 1" in line for line in lines if line.lstrip().startswith("HS2")
    )


ON_FEW = {"text": TextRecord(source="a/stories.txt", tokens=1920, windows=15, unknown=0)}
CONE = ON_FEW | ILL["HS101"] | {"loss": None, "removed": []}


def test_too_few_tokens_are_no_all_clear_in_headline_grid_page_and_result():
    result = result_of(**{"the-model": CONE})
    assert result.findings[0].code == "HS101"
    assert result.document["findings"][0]["possible"] is True
    assert result.document["examinations"][0]["too_few"] is True
    assert result.highest_level == result.document["highest_level"] == "not examined"
    verdict = result.examinations[0].summary[-1]
    assert verdict.startswith(
        "Too few tokens to raise an alarm: 1,920 were read, 2,048 are needed; 1 number lies "
        "beyond its limit"
    )
    page = html(assemble(result))
    text = " ".join(printed(result).split())
    title = "the-model: too few tokens to raise an alarm; 1 number lies beyond its limit"
    for shown in (page, text):
        assert title in shown
        assert (
            "1,920 tokens were read, and an alarm needs 2,048; beyond the limit: narrow cone "
            "(HS101)." in shown
        )
        assert "no alarm" not in shown.lower().replace("an alarm needs at least", "")
        assert "None of the alarms" not in shown
    assert '<span class="flag few">too few tokens</span>' in page
    assert 'class="flag fine"' not in page
    assert re.search(r'<a class="possible" href="#sheet-HS101"[^>]*>\?</a>', page)
    assert "? 0.900" in text
    assert "next: headscan checkup models/the-model --text a/stories.txt" in text
    assert "| HS101 | Narrow cone | notice |" in markdown(result)


def test_too_few_tokens_without_a_number_beyond_its_limit_are_no_all_clear_either():
    result = result_of(**{"the-model": ON_FEW})
    text = " ".join(printed(result).split())
    assert "the-model: too few tokens to raise an alarm; no number lies beyond its limit" in text
    enough = result_of(**{"the-model": {"text": replace(ON_FEW["text"], tokens=2048, windows=16)}})
    assert "the-model: no alarm" in printed(enough)
    assert enough.highest_level == "fine"


def test_models_of_which_too_little_was_read_are_told_from_healthy_ones():
    text = " ".join(printed(result_of(**{"ill": ILL["HS201"], "short": CONE, "well": {}})).split())
    assert "1 of 3 models needs attention" in text
    assert (
        "short: 1,920 tokens were read, and an alarm needs 2,048; beyond the limit: narrow cone "
        "(HS101)." in text
    )
    assert "The other: no alarm." in text
    text = printed(result_of(**{"short": CONE, "well": {}}))
    assert "No alarm in 1 of 2 models; too few tokens for one in the rest" in text
    assert "Too few tokens to raise an alarm in any of 2 models" in printed(
        result_of(**{"a": CONE, "b": CONE})
    )
    coarse = printed(result_of(**{"the-model": CONE | ILL["HS203"]}))
    assert "the-model: 1 alarm" in coarse
    assert "no other alarm on the text could be raised" in " ".join(coarse.split())


NO_TIME = {
    "read": None,
    "bits": None,
    "flow": None,
    "cure": None,
    "skipped": [
        out_of_time("inversion", "No prompt was inverted", "2m"),
        out_of_time("flow", "Flow between tokens was not measured", "2m"),
        out_of_time("remedies", "No remedy was tried", "2m"),
    ],
}


def test_what_was_not_examined_stays_visible_with_its_reason_and_option():
    result = result_of(**{"the-model": NO_TIME})
    examination = result.examinations[0]
    left_out = {row.code: row for row in examination.unexamined if row.option}
    assert set(left_out) == {"HS301", "HS302", "HS303", "HS402"}
    assert {row.option for row in left_out.values()} == {"--budget 10m"}
    examined = len(examination.observations)
    title = f"the-model: no alarm in {examined} of {examined + 4} conditions; leak not examined"
    page = html(assemble(result))
    text = " ".join(printed(result).split())
    reason = "there was no time in 2m; --budget 10m examines it"
    for shown in (page, text):
        assert title in shown
        assert reason in shown
    assert re.search(r'<a class="none" href="#sheet-HS301"[^>]*>–</a>', page)
    assert "– HS301" not in text
    assert "| HS301 | States that give the prompt away | not examined | there was no time" in (
        markdown(result)
    )
    stored = result.document["examinations"][0]["unexamined"]
    assert {row["code"] for row in stored if row["option"]} == set(left_out)
    assert "Leak: not examined: there was no time in 2m (--budget 10m examines it)." in (
        examination.summary
    )
    # a condition that does not apply is listed, and not counted
    assert "HS204" in {row.code for row in examination.unexamined}
    whole = result_of(**{"the-model": {}}).examinations[0]
    assert whole.scope == f"in {len(whole.observations)} conditions"


def test_an_interval_that_holds_the_limit_is_a_possible_alarm_everywhere():
    unsure = {"loss": loss(loss=5.2, loss_interval=[4.8, 5.6])}
    result = result_of(**{"the-model": unsure})
    finding = result.findings[0]
    assert (finding.code, finding.level, finding.possible) == ("HS201", "notice", True)
    assert result.highest_level == "notice"
    text = " ".join(printed(result).split())
    assert "the-model: no certain alarm; 1 number lies beyond its limit" in text
    assert "Uncertain, because the 95 % interval includes the limit: predictions no better" in text
    assert "? 1.04" in text
    page = html(assemble(result))
    assert '<span class="flag few">1 possible</span>' in page
    assert "| HS201 | Predictions no better than counting | notice |" in markdown(result)
