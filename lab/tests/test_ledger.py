"""The ledger: its rule, its statements, a killed run, the page, the commands and the figures."""

import os
import re
import shlex
import signal
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from cyclopts import CycloptsError
from headscan_lab.ledger.figures import FIGURES, redraw
from headscan_lab.ledger.measurement import Measurement, share_of
from headscan_lab.ledger.page import ledger_page
from headscan_lab.ledger.run import (
    ReproduceResult,
    all_statements,
    reproduce,
    wanted_statements,
)
from headscan_lab.ledger.statement import (
    STATEMENTS,
    Observation,
    Region,
    enter,
    joint_verdict,
    verdict_of,
)
from headscan_lab.ledger.untested import NOT_TESTED
from headscan_lab.pages.reproduce import models_counted, summary

from headscan.cli import command_of
from headscan.cli.command import Command
from headscan.run import BadInput
from tests.forked import fork, status_of

QUICK = ["S3", "P2", "P4"]


def measured(low, high):
    return Measurement(name="x", value=(low + high) / 2, interval=(low, high))


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    return reproduce(QUICK, out=tmp_path_factory.mktemp("ledger") / "run")


def test_the_rule():
    statement = replace(all_statements()["S1"], counts=Region(0.5, None))
    holds = Observation(values=[measured(0.6, 0.7), measured(0.55, 0.9)])
    fails = Observation(values=[measured(0.1, 0.2), measured(0.3, 0.45)])
    choice_decides = Observation(values=[measured(0.6, 0.7), measured(0.1, 0.2)])
    crosses = Observation(values=[measured(0.4, 0.6)])
    assert verdict_of(statement, holds) == "supported"
    assert verdict_of(statement, replace(holds, note="another cause")) == "not supported here"
    assert verdict_of(statement, replace(holds, note="optimiser")) == "supported"
    assert verdict_of(statement, fails) == "not supported here"
    assert verdict_of(statement, choice_decides) == verdict_of(statement, crosses) == "undecided"
    formula = replace(statement, formula=True)
    assert verdict_of(formula, fails) == "refuted"
    assert verdict_of(replace(formula, corrected="another"), fails) == "misprint"
    assert joint_verdict(["supported", "not supported here"]) == "undecided"
    assert joint_verdict(["not tested"]) == "not tested"


def test_a_statement_names_control_range_and_the_result_that_turns_it():
    ledger = all_statements()
    assert 30 <= len(ledger) <= 40
    for statement in ledger.values():
        assert statement.control
        assert statement.range
        assert statement.turned_by
        assert statement.measured
        assert statement.corrected == "" or statement.formula
    with pytest.raises(BadInput, match="twice"):
        enter(ledger["P4"])


@pytest.mark.parametrize(
    "id",
    ["S3", "S4", "S8", "P1", "P2", "P3", "P4", "P5", "A11", "A12", "L2", "L5"],
)
def test_planted_cases_come_out_as_they_have_to(id):
    statement = all_statements()[id]
    expected = "in" if statement.planted_holds else "out"
    assert statement.counts.side(statement.planted(0)) == expected


def test_statements_are_named_by_id_and_document():
    assert wanted_statements("p2") == ["P2"]
    assert wanted_statements(["A1", "S1"]) == ["S1", "A1"]
    assert all(id.startswith("S") for id in wanted_statements("slides"))
    assert wanted_statements(()) == list(all_statements())
    for word in ("x", "S99", "203"):
        with pytest.raises(BadInput, match="no statement"):
            wanted_statements([word])


def test_records_have_what_the_contract_names(quick):
    verdicts = {record.id: record.verdict for record in quick.claims}
    assert verdicts == {
        "S3": "supported",
        "P2": "misprint",
        "P4": "misprint",
    }
    properties = set(ReproduceResult.json_schema()["$defs"]["ClaimRecord"]["properties"])
    assert properties >= {
        "id",
        "document",
        "statement",
        "verdict",
        "effect",
        "interval",
        "prompts",
        "seeds",
        "models",
        "stand_ins",
        "evidence",
        "control",
        "turned_by",
        "range",
    }
    for record in quick.claims:
        assert record.planted_as_known
        assert {evidence.side for evidence in record.evidence} <= {"for", "against", "beside"}
    frame = quick.frame()
    assert set(frame["id"]) == set(QUICK)


def test_a_planted_case_on_the_wrong_side_leaves_a_statement_untested(monkeypatch):
    broken = replace(all_statements()["P4"], planted=lambda _seed: measured(1.0, 1.1))
    monkeypatch.setitem(STATEMENTS._items, "P4", broken)
    (record,) = reproduce(["P4"]).claims
    assert record.verdict == "not tested"


def test_the_page_has_a_row_a_statement_and_the_untested(quick):
    page = ledger_page(quick)
    for record in quick.claims:
        assert f"| {record.id} | " in page
        assert f"### {record.id}. " in page
    for _, statement, _ in NOT_TESTED:
        assert statement in page
    assert re.search(r"\| S3 \| the commonest word of the stories \| .* \| inside \|", page)
    assert "misprint 2" in summary(quick.claims) or "2 misprint" in summary(quick.claims)
    assert quick.page().count("planted case") >= len(QUICK)


def test_models_of_one_tokenizer_count_as_one(quick):
    record = quick.claims[0]
    finding = replace(record.findings[0], tokenizer="a")
    twice = replace(record, findings=[finding, replace(finding, model="other")])
    assert models_counted(record) == 0
    assert models_counted(twice) == 1
    apart = replace(record, findings=[finding, replace(finding, tokenizer="b")])
    assert models_counted(apart) == 2


def killed(out):
    """Run two statements, and kill the process before the second is finished."""

    def progress(stage, done, total=None, unit="tokens"):
        if done == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    reproduce(["P4", "P5"], seed=3, out=out, progress=progress)


def test_a_killed_ledger_goes_on_where_it_was(tmp_path):
    out = tmp_path / "killed"
    process = fork(lambda: killed(out), tmp_path / "said.txt")
    assert status_of(process) == -signal.SIGKILL, (tmp_path / "said.txt").read_text()
    with pytest.raises(BadInput, match="--seed was 3 and is 4 now"):
        reproduce(["P4", "P5"], seed=4, out=out, resume=True)
    resumed = reproduce(["P4", "P5"], seed=3, out=out, resume=True)
    whole = reproduce(["P4", "P5"], seed=3)
    assert [record.effect for record in resumed.claims] == [r.effect for r in whole.claims]
    assert ReproduceResult.load(out).claims == resumed.claims


def test_findings_are_stored_and_read_back(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADSCAN_LEDGER", str(tmp_path))
    first = reproduce(["P4"]).claims[0]
    stored, planted = sorted(tmp_path.glob("*.json"), key=lambda file: -file.stat().st_size)
    assert "eight tokens" in planted.read_text()
    stored.write_text(stored.read_text().replace('"seconds":', '"seconds":1000'))
    assert reproduce(["P4"]).claims[0].seconds > first.seconds + 900


def test_a_model_is_refused_where_no_statement_can_be_tried_on_it():
    with pytest.raises(BadInput, match="--on tries what is said of trained models"):
        reproduce(["P4"], on="gpt-vanilla")
    with pytest.raises(BadInput, match=r"No statement of arXiv:1234\.5678"):
        reproduce(paper="1234.5678")


class Reached(Exception):
    """Raised in place of running a verb whose arguments were checked."""


@cache
def checking_app(name):
    """Return the command line of a verb, which checks its arguments and raises `Reached`."""
    real = command_of(name)
    record = real.verb().verb

    def check(*subject, **options):
        for option in ("progress", "command"):
            options.pop(option, None)
        record.arguments(subject, options)
        raise Reached

    check.verb = record
    command = Command(verb=lambda: check, subject=real.subject, arguments=real.arguments)
    return command.app(name)


def check_command(command):
    """Raise an error for a command whose words and options its verb does not take."""
    name, *words = shlex.split(command)[1:]
    with pytest.raises(Reached):
        checking_app(name)(words, exit_on_error=False, print_error=False)


def test_the_commands_of_statements_can_be_read():
    for statement in all_statements().values():
        for command in statement.command.split("; "):
            if command.startswith("headscan "):
                check_command(command)
    with pytest.raises(CycloptsError, match="nonsense"):
        check_command("headscan invert gpt2 --prompt 'The sky' --nonsense 1")


@pytest.mark.parametrize("name", ["slides-zipf", "slides-svd"])
def test_figures_are_drawn_from_what_their_title_names(name):
    figure = redraw(name, 0)
    assert all(len(curve.at) == len(curve.values) for curve in figure.curves)
    assert figure.curves
    if name == "slides-zipf":
        assert [curve.name for curve in figure.curves] == [
            "words of the stories",
            "words of the reference",
            "published",
        ]


def test_every_figure_is_drawn_or_says_why_not():
    for maker in FIGURES.values():
        assert (maker.make is None) == bool(maker.shown.why_not)


def test_shares_have_intervals_that_do_not_close():
    share = share_of("found", [[[1.0, 1.0]] * 8] * 5)
    assert share.interval[0] < 1.0


def commands_of_the_literature():
    """Return the commands of lab/docs/literature.md that headscan's own verbs do."""
    page = Path(__file__).parents[1] / "docs" / "literature.md"
    cells = re.findall(r"^\|[^|]*\|([^|]*)\|", page.read_text(), flags=re.MULTILINE)
    return [command for cell in cells for command in re.findall(r"`(headscan [^`]+)`", cell)]


def test_the_commands_of_the_literature_can_be_read():
    commands = commands_of_the_literature()
    assert len(commands) > 40
    for command in commands:
        check_command(command)
    named = {id for command in commands for id in re.findall(r"\b[SPAL]\d+\b", command)}
    assert named <= set(all_statements())


def test_every_part_of_the_documents_names_what_holds_it():
    page = (Path(__file__).parents[1] / "docs" / "literature.md").read_text()
    parts = re.findall(r"^\| (?!Part |-)(.+?) \| .*`.* \| (.+) \|$", page, flags=re.MULTILINE)
    assert len(parts) >= 59
    for part, held_by in parts:
        statements = re.findall(r"\b[SPAL]\d+\b", held_by)
        tests = re.findall(r"(?:lab/)?tests/[\w/.]+", held_by)
        assert statements or tests, part
        assert set(statements) <= set(all_statements()), part
        for test in tests:
            assert (Path(__file__).parents[2] / test).exists(), part
