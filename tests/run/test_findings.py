"""One table of codes for all verbs; what does not count, by --ignore and by --baseline."""

import ast
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

import headscan
from headscan.diagnosis import CONDITIONS
from headscan.run import Finding
from headscan.run.findings import new_alarms
from headscan.run.kinds import KINDS
from tests.command_line import headscan as typed

SOURCE = Path(headscan.__file__).parent
WORD = re.compile(r"[A-Z]{2,}([ _-][A-Z]+)+|[A-Z]{3,}")
OF = (
    "gpt-vanilla-early",
    "--text",
    "stories",
    "--max-tokens",
    "2048",
    "--sites",
    "block.*,final_norm",
)
PLACES = (
    "scanner/findings.py",
    "scanner/cautions.py",
    "scanner/anatomy_findings.py",
    "comparison/findings.py",
    "comparison/damage_findings.py",
    "attribution/findings.py",
    "remedies/judge.py",
    "ntp/findings.py",
    "flow/run.py",
    "flow/channel.py",
)


def test_every_name_that_a_verb_gives_stands_in_the_table_once():
    names = {
        node.value
        for path in PLACES
        for node in ast.walk(ast.parse((SOURCE / path).read_text("utf-8")))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and WORD.fullmatch(node.value)
    }
    assert names == {kind.name for kind in KINDS if kind.code[:3] not in ("HS5", "HS6")}
    assert len({kind.code for kind in KINDS}) == len({kind.name for kind in KINDS}) == len(KINDS)


def test_a_code_that_a_checkup_has_too_is_about_the_same():
    shared = {kind.code: kind.name for kind in KINDS if kind.code in CONDITIONS}
    assert shared == {"HS101": "CONE", "HS102": "ROGUE", "HS104": "SINK", "HS205": "UNKNOWN-TOKENS"}


def test_results_of_before_have_the_codes_of_now():
    assert (
        Finding(code="CONE", level="notice", sentence="").code,
        Finding(code="HS101", level="notice", sentence="").name,
    ) == ("HS101", "")


@pytest.fixture(scope="module")
def scanned(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scanned")
    assert typed("scan", *OF, "--out", str(folder)).status == 0
    return folder


def test_what_is_ignored_stays_and_does_not_count(scanned, tmp_path):
    first, second, *_ = headscan.load(scanned).findings
    ended = typed(
        "scan", *OF, "--ignore", f"{first.code},{second.name[:3]}*", "--out", str(tmp_path)
    )
    assert ended.status == 0, ended.output
    rows = json.loads((tmp_path / "result.json").read_text())["findings"]
    passed = {row["name"]: row["passed"] for row in rows}
    assert (
        {name for name, why in passed.items() if why == "ignored"}
        == {first.name, second.name}
        != {*passed}
    )
    assert "ignored" in ended.output


def test_a_baseline_takes_what_it_has_and_fails_on_a_new_alarm(scanned, tmp_path):
    same = typed("scan", *OF, "--baseline", str(scanned), "--out", str(tmp_path / "same"))
    assert same.status == 0, same.output
    assert {finding.passed for finding in headscan.load(tmp_path / "same").findings} == {"known"}
    alarm = Finding(
        code="CONE", level="alert", sentence="", model="gpt-vanilla-early", site="block.9"
    )
    earlier = headscan.load(scanned)
    known = [replace(finding, passed="known") for finding in earlier.findings]
    assert new_alarms([*known, alarm]) == ["HS101"]


def test_a_checkup_fails_on_what_counts_alone(tmp_path):
    of = (
        "checkup",
        "gpt-vanilla",
        "--text",
        "stories",
        "--max-tokens",
        "256",
        "--context",
        "32",
        "--fail-on",
        "HS3*",
    )
    assert typed(*of, "--out", str(tmp_path / "all")).status == 3
    assert typed(*of, "--ignore", "HS3*", "--out", str(tmp_path / "less")).status == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--ignore", "CONNE"), "no finding is called 'CONNE'. Did you mean 'CONE'?"),
        (("--baseline", "nowhere.json"), "there is no file nowhere.json"),
        (("--baseline", "README.md"), "README.md is no result.json of headscan"),
        (("--baseline", "{ntp}"), "is a result of ntp, not of scan"),
    ],
)
def test_wrong_ones_are_told_before_any_work(arguments, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[2])
    (tmp_path / "ntp.json").write_text(json.dumps({"protocol": {"verb": "ntp"}, "findings": []}))
    ended = typed(
        "scan",
        *OF,
        *(word.format(ntp=tmp_path / "ntp.json") for word in arguments),
        "--out",
        str(tmp_path / "out"),
    )
    assert (ended.status, sentence in ended.stderr, (tmp_path / "out").exists()) == (
        2,
        True,
        False,
    ), ended.stderr
