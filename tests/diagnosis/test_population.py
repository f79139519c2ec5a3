"""The reference population: its pages follow from its table, and a number stands among it as it should."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from headscan.diagnosis import CONDITIONS
from headscan.diagnosis import population as module
from headscan.diagnosis.population import Reference, beside, healthy_without, population

ROOT = Path(__file__).parents[2]


def test_the_leaderboard_in_readme_and_docs_is_the_table():
    spec = importlib.util.spec_from_file_location("population_pages", ROOT / "scripts" / "population.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    made = script.pages()
    assert {path.name for path in made} == {"population.md", "README.md"}
    for path, text in made.items():
        assert path.read_text(encoding="utf-8") == text, (
            f"run scripts/population.py: {path.name} is not what the table gives"
        )


def test_each_row_is_of_a_named_text_and_its_alarms_follow_from_its_values():
    assert len({one.model for one in population()}) == len(population())
    for one in population():
        assert "" not in (one.text, one.about, one.version)
        assert one.kind in ("healthy", "ill")
        for code, value in one.values.items():
            if abs(value - CONDITIONS[code].threshold) > 1e-3 * abs(CONDITIONS[code].threshold):
                assert (code in one.present) == CONDITIONS[code]().present(value), (one.model, code)


def test_healthy_models_raise_no_alarm():
    for one in population():
        alarms = [code for code, value in one.values.items() if CONDITIONS[code]().alarms(value)]
        assert one.kind == "ill" or not alarms, (one.model, alarms)


def test_a_number_stands_among_the_healthy_ones_only(monkeypatch):
    rows = tuple(
        Reference(
            model=f"m{k}",
            kind="healthy" if k < 6 else "ill",
            text="t",
            values={"HS101": k / 10},
            present=["HS101"] * (k == 5),
        )
        for k in range(9)
    )
    monkeypatch.setattr(module, "population", lambda: rows)
    assert beside("HS101", 0.25) == "more than 3 of 6 healthy models"
    assert beside("HS101", 0.25, least=False) == "less than 3 of 6 healthy models"
    assert healthy_without({"HS101": lambda value: value >= 0.5}) == (5, 6)
    assert beside("HS103", 0.25) == "too few reference models"


@pytest.mark.parametrize("code", CONDITIONS)
def test_a_condition_says_where_it_is_from(code):
    assert "" not in (CONDITIONS[code].source, CONDITIONS[code].unit)
