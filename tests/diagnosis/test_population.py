"""The reference population: its pages follow from its table, and a number stands among it as it
should.
"""

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from headscan.diagnosis import CONDITIONS
from headscan.diagnosis import population as module
from headscan.diagnosis.population import (
    Reference,
    beside,
    compared_with,
    edition,
    healthy_without,
    highest_loss,
    population,
)
from headscan.diagnosis.publish import contribute
from headscan.diagnosis.registry import alarming
from headscan.diagnosis.run import judged
from headscan.run import ModelRecord, TextRecord
from tests.command_line import headscan as cli
from tests.diagnosis.test_conditions import HEALTHY, ILL
from tests.diagnosis.test_sheet import result_of

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location(
        "population_pages", ROOT / "scripts" / "population.py"
    )
    script = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = script  # dataclasses look their module up
    spec.loader.exec_module(script)
    return script


def test_the_page_of_the_docs_is_the_table(script):
    pages = script.pages()
    assert {path.name for path in pages} == {"population.md"}
    for path, text in pages.items():
        assert path.read_text(encoding="utf-8") == text, (
            f"run scripts/population.py: {path.name} is not what the table gives"
        )


def test_each_row_is_of_a_named_text_and_its_alarms_follow_from_its_values():
    assert len({row.model for row in population()}) == len(population())
    for row in population():
        assert not {"", None} & {
            row.text,
            row.about,
            row.version,
            row.tokens,
            row.context,
            row.budget,
        }
        assert row.kind in ("healthy", "ill")
        for code, value in row.values.items():
            if abs(value - CONDITIONS[code].threshold) > 1e-3 * abs(CONDITIONS[code].threshold):
                present = CONDITIONS[code].present(value)
                assert (code in row.present) <= present, (row.model, code)
                # its interval counts, too
                assert (code in row.present) == present or code == "HS402", (row.model, code)


def test_healthy_models_raise_no_alarm():
    for row in population():
        assert row.kind == "ill" or not alarming(row.values), row.model


def test_a_fault_that_was_injected_raises_its_alarm():
    expected = {
        "rogue coordinate": "HS102",
        "cone": "HS101",
        "collapsed layer": "HS103",
        "untied scale": "HS202",
        "4-bit damage": "HS203",
        "untrained head": "HS201",
        "deaf attention": "HS303",
    }
    for row in population():
        _, injected, fault = row.about.partition("injected: ")
        assert not injected or expected[fault] in alarming(row.values), row.model


def test_a_number_stands_among_the_healthy_ones_only(monkeypatch):
    rows = tuple(
        Reference(
            model=f"m{k}",
            kind="healthy" if k < 6 else "ill",
            text="t",
            values={"HS101": 0.9 if k == 5 else k / 10},
            present=["HS101"] if k == 5 else [],
        )
        for k in range(9)
    )
    monkeypatch.setattr(module, "population", lambda: rows)
    assert beside("HS101", 0.25) == "higher than 3 of 6 healthy models"
    assert beside("HS101", 0.25, least=False) == "lower than 3 of 6 healthy models"
    assert beside("HS101", 0.0) == "no higher than any of 6 healthy models"
    assert healthy_without({"HS101"}) == (5, 6)
    assert beside("HS103", 0.25) == "too few reference models"


@pytest.mark.parametrize("code", CONDITIONS)
def test_a_condition_says_where_it_is_from(code):
    assert "" not in (CONDITIONS[code].source, CONDITIONS[code].unit)


def test_a_contributed_row_is_taken_in(script, tmp_path, monkeypatch):
    edition_before = edition()
    contribute(result_of(mine=ILL["HS101"], other={}), tmp_path / "rows.json")
    rows = script.contributed(str(tmp_path / "rows.json"))
    assert [(row.model, row.kind, row.text, row.context) for row in rows] == [
        ("mine", "unjudged", "stories.txt", 128),
        ("other", "unjudged", "stories.txt", 128),
    ]
    mine = replace(rows[0], kind="ill", about="a model of mine")
    monkeypatch.setattr(module, "population", lambda rows=population(): (*rows, mine))
    assert mine not in compared_with()  # nobody has judged it to be healthy
    assert edition() != edition_before
    monkeypatch.setattr(script, "population", module.population)
    page = script.pages()[ROOT / "docs" / "generated" / "population.md"]
    assert f"Edition {edition()}" in page
    assert "| mine | a model of mine |" in page


def test_a_model_is_compared_with_others_of_its_kind_and_not_with_itself(monkeypatch):
    rows = tuple(
        Reference(
            model=f"m{k}",
            kind="healthy",
            text="t",
            values={"HS101": 0.1, "HS201": 0.2 + k / 10},
            present=[],
            embeds=k > 6,
            weights=f"w{k}",
            parameters=1000 if k == 4 else 10**k,
        )
        for k in range(9)
    )
    monkeypatch.setattr(module, "population", lambda: rows)
    record = ModelRecord(name="m", parameters=1000)
    text = TextRecord(source="a/t", tokens=2048, windows=16)
    evidence = replace(HEALTHY, weights="w3", record=record, text=text)
    assert [model.model for model in compared_with(evidence)] == [
        "m0",
        "m1",
        "m2",
        "m4",
        "m5",
        "m6",
    ]
    assert beside("HS101", 0.3, evidence) == "higher than all 6 healthy models"
    column = replace(HEALTHY, text=replace(text, unit="vectors"))
    assert [model.model for model in compared_with(column)] == ["m7", "m8"]
    assert beside("HS101", 0.3, column) == "too few reference models"
    # the loss is compared on the same text and at about the same size alone
    assert highest_loss(evidence) is None  # one model is no range
    assert highest_loss(replace(evidence, weights="other")) == (0.2 + 4 / 10, 2)
    assert highest_loss(replace(evidence, text=replace(text, source="b"), weights="other")) is None


def test_a_loss_above_healthy_models_of_its_size_is_a_notice(monkeypatch):
    row = Reference(
        model="twin", kind="healthy", text="t", values={"HS201": 0.3}, present=[], parameters=900
    )
    other = replace(row, model="other", values={"HS201": 0.2})
    monkeypatch.setattr(module, "population", lambda: (row, other))
    evidence = replace(
        HEALTHY,
        record=ModelRecord(name="m", parameters=1000),
        text=TextRecord(source="t", tokens=2048, windows=16),
    )
    observed = {item.code: item for item in judged(evidence, []).observations}
    assert (observed["HS220"].level, round(observed["HS220"].value, 2)) == ("notice", 1.33)


@pytest.mark.parametrize("name", ["", "there.json", "missing/rows.json", ".", "a" * 300])
def test_a_file_that_cannot_be_contributed_to_is_refused_before_the_run(name, tmp_path):
    (tmp_path / "there.json").write_text("kept")
    file = name and str(tmp_path / name)
    done = cli(
        "checkup",
        "gpt-vanilla",
        "--text",
        "stories",
        "--contribute",
        file,
        "--out",
        str(tmp_path / "o"),
    )
    assert (done.status, done.stderr.count("\n"), "--contribute" in done.stderr) == (2, 1, True)
    assert (tmp_path / "there.json").read_text() == "kept"
    assert not (tmp_path / "o").exists()
