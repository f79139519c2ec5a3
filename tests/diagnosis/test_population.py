"""The reference population: its pages follow from its table, and a number stands among it as it should."""

import importlib.util
from pathlib import Path

import pytest

from headscan.diagnosis import CONDITIONS
from headscan.diagnosis import result as module
from headscan.diagnosis.registry import alarming
from headscan.diagnosis.result import Reference, beside, healthy_without, population

ROOT = Path(__file__).parents[2]


def test_the_page_of_the_docs_is_the_table():
    spec = importlib.util.spec_from_file_location("population_pages", ROOT / "scripts" / "population.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    made = script.pages()
    assert {path.name for path in made} == {"population.md"}
    for path, text in made.items():
        assert path.read_text(encoding="utf-8") == text, f"run scripts/population.py: {path.name} is not what the table gives"


def test_each_row_is_of_a_named_text_and_its_alarms_follow_from_its_values():
    assert len({one.model for one in population()}) == len(population())
    for one in population():
        assert "" not in (one.text, one.about, one.version)
        assert one.kind in ("healthy", "ill")
        for code, value in one.values.items():
            if abs(value - CONDITIONS[code].threshold) > 1e-3 * abs(CONDITIONS[code].threshold):
                present = CONDITIONS[code].present(value)
                assert (code in one.present) <= present, (one.model, code)
                assert (code in one.present) == present or code == "HS402", (one.model, code)  # its interval counts, too


def test_healthy_models_raise_no_alarm():
    for one in population():
        assert one.kind == "ill" or not alarming(one.values), one.model


def test_a_fault_that_was_injected_raises_its_alarm():
    expected = {"rogue coordinate": "HS102", "cone": "HS101", "collapsed layer": "HS103", "untied scale": "HS202",
                "4-bit damage": "HS203", "untrained head": "HS201", "deaf attention": "HS303"}  # fmt: skip
    for one in population():
        _, injected, fault = one.about.partition("injected: ")
        assert not injected or expected[fault] in alarming(one.values), one.model


def test_a_number_stands_among_the_healthy_ones_only(monkeypatch):
    rows = tuple(
        Reference(
            model=f"m{k}",
            kind="healthy" if k < 6 else "ill",
            text="t",
            values={"HS101": 0.9 if k == 5 else k / 10},
            present=["HS101"] * (k == 5),
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
