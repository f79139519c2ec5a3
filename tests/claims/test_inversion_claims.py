"""The ledger of inversion: complete, runnable, and its rules."""

from __future__ import annotations

from itertools import product

import pytest

from headscan.claims import inversion
from headscan.claims.claim import OUTCOMES
from headscan.claims.inversion_experiments import EXPERIMENTS
from headscan.claims.inversion_statements import STATEMENTS
from headscan.claims.inversion_variants import VARIANTS
from headscan.claims.ledger import all_claims, ledger_page, reproduce, wanted
from headscan.run import BadInput


def test_every_claim_is_there_with_a_known_experiment_and_rule():
    assert [entry.number for entry in STATEMENTS] == [*range(1, 22), *range(28, 105), *range(123, 127)]
    assert {entry.experiment for entry in STATEMENTS} <= set(EXPERIMENTS) | set(VARIANTS)
    assert set(VARIANTS) <= {entry.experiment for entry in STATEMENTS}
    assert {entry.rule for entry in STATEMENTS} == set(inversion.RULES)
    assert all(entry.statement.endswith(".") for entry in STATEMENTS)
    assert set(range(1, 105)) | set(range(123, 127)) <= set(all_claims())


def test_commands_of_larger_models_are_ones_that_headscan_knows():
    import shlex

    from typer.testing import CliRunner

    from headscan.cli import app

    words = CliRunner().invoke(app, ["invert", "--help"], env={"COLUMNS": "300"}).stdout
    for entry in STATEMENTS:
        if entry.command.startswith("headscan invert"):
            for option in (word for word in shlex.split(entry.command) if word.startswith("--")):
                assert option in words, entry.command


def test_claims_run_and_make_a_page(tmp_path):
    result = reproduce(["7", "30", "15"], out=tmp_path)
    outcomes = {row.number: row.outcome for row in result.claims}
    assert outcomes == {7: "reproduced", 15: "artefact", 30: "artefact"}
    assert set(outcomes.values()) <= set(OUTCOMES)
    page = ledger_page(result)
    assert page.count("\n| ") == 4
    assert (tmp_path / "report.html").is_file()


def test_rules_tell_a_failed_optimiser_from_absent_information():
    assert inversion.lost({"a": 0.1, "b": 1.0}, "a", "b").outcome == "artefact"
    assert inversion.lost({"a": 0.1, "b": 0.2}, "a", "b").outcome == "reproduced"
    assert inversion.lost({"a": 1.0, "b": 1.0}, "a", "b").outcome == "not reproduced"
    assert inversion.start_wins({"a": 0.0, "b": 1.0, "c": 1.0}, "a", "b", "c").outcome == "artefact"
    assert inversion.more({"a": 0.5, "b": 0.5}, "a", "b").outcome == "not reproduced"


def test_every_rule_can_fail_and_can_hold():
    """For each entry some numbers give its verdict another outcome: no rule is a foregone conclusion."""
    for entry in STATEMENTS:
        if entry.rule == "larger":
            continue
        keys = [one for one in entry.arguments if isinstance(one, str) and " " not in one]
        outcomes = set()
        for values in product((0.0, 0.5, 1.0), repeat=len(keys)):
            numbers = dict(zip(keys, values, strict=True))
            outcomes.add(inversion.RULES[entry.rule](numbers, *entry.arguments).outcome)
        assert len(outcomes) > 1, entry.number


def test_new_rules():
    assert inversion.failed_by({"a": 0.1, "b": 1.0}, "a", "b", "Why.").outcome == "artefact"
    assert inversion.failed_by({"a": 0.1, "b": 0.5}, "a", "b", "Why.").outcome == "reproduced"
    assert inversion.failed_by({"a": 1.0, "b": 1.0}, "a", "b", "Why.").outcome == "not reproduced"
    assert inversion.partly({"a": 0.0}, "a").outcome == inversion.partly({"a": 1.0}, "a").outcome == "not reproduced"
    assert inversion.partly({"a": 0.5}, "a").outcome == "reproduced"
    assert inversion.near({"d": 0.1, "a": 0.5, "b": 1.0}, "d", "a", "b", 0.2).outcome == "artefact"
    assert inversion.near({"d": 0.3, "a": 0.5, "b": 1.0}, "d", "a", "b", 0.2).outcome == "not reproduced"
    assert inversion.differ({"a": 0.9}, "a", "Why.").outcome == "not reproduced"


def test_odd_claims_are_refused():
    for text, words in (("x", "no claim"), ("3-", "no claim"), ("999", "no claim 999")):
        with pytest.raises(BadInput, match=words):
            wanted([text])
