"""One table of codes for all verbs; what does not count, by --ignore and by --baseline."""

import ast
import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

import headscan
from headscan.diagnosis import CONDITIONS
from headscan.diagnosis.measurements import Measurements
from headscan.run import Finding
from headscan.run.findings import SPELT, new_alarms
from headscan.run.kinds import KINDS
from tests.command_line import headscan as typed
from tests.tiny import TEXTS, save_tiny

SOURCE = Path(headscan.__file__).parent
MAKERS = re.compile(r"\b(declare|_alarm|Finding)\(")
OF = (
    "gpt-vanilla-early",
    "--text",
    "stories",
    "--max-tokens",
    "512",
    "--sites",
    "block.3,final_norm",
)


@cache
def calls_in_source():
    """Return each call of a function by its plain name, with its file, where findings are made."""
    calls = []
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text("utf-8")
        if not MAKERS.search(text):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                calls.append((str(path.relative_to(SOURCE)), node))
    return calls


def declared_in_source():
    """Code and name of each call of `declare` in the source, wherever it stands."""
    rows = []
    for _, call in calls_in_source():
        if call.func.id in ("declare", "_alarm"):
            values = [word.value for word in call.args[:2] if isinstance(word, ast.Constant)]
            if len(values) == 2:
                rows.append(tuple(values))
    return rows


def test_every_kind_is_declared_once_with_its_verb_and_found_by_the_registry():
    declared = declared_in_source()
    assert len({code for code, _ in declared}) == len({name for _, name in declared})
    # a phenomenon that two verbs name has one code
    assert {(code, kind.name) for code, kind in KINDS.items()} == set(declared)
    assert all(SPELT.fullmatch(code) for code, _ in declared)


def test_no_finding_is_made_beside_its_kind():
    makers = {file for file, call in calls_in_source() if call.func.id == "Finding"}
    assert makers == {"run/kinds.py", "training/monitor/alarms.py"}


def test_a_code_that_a_checkup_has_too_is_about_the_same():
    shared = {code: kind.name for code, kind in KINDS.items() if code in CONDITIONS}
    assert shared == {
        "HS101": "CONE",
        "HS102": "ROGUE",
        "HS104": "SINK",
        "HS205": "UNKNOWN-TOKENS",
        "HS301": "READ",
    }


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
        code="HS101", level="alarm", sentence="", model="gpt-vanilla-early", site="block.9"
    )
    earlier = headscan.load(scanned)
    known = [replace(finding, passed="known") for finding in earlier.findings]
    assert new_alarms([*known, alarm]) == ["HS101"]


def test_a_checkup_fails_on_what_counts_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(Measurements, "leak", lambda _: (None, None))  # half of the time
    model = save_tiny(tmp_path / "tiny")
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(TEXTS), encoding="utf-8")
    options = ("--text", str(text), "--max-tokens", "160", "--context", "16", "--fail-on", "HS*")
    of = ("checkup", str(model), *options)
    assert typed(*of, "--out", str(tmp_path / "all")).status == 3
    assert typed(*of, "--ignore", "HS*", "--out", str(tmp_path / "less")).status == 0


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


def kinds_with_a_number():
    """Return the variable of every kind whose findings are made with a number, by its place."""
    made = {}
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            func = call.func
            kind = None
            if isinstance(func, ast.Attribute) and func.attr == "finding":
                has_value = any(keyword.arg == "value" for keyword in call.keywords)
                kind = func.value if has_value else None
            elif (
                isinstance(func, ast.Name)
                and func.id == "_finding"
                and path.parent.name == "scanner"
            ):
                kind = call.args[0]
            if isinstance(kind, ast.Name) and kind.id.isupper():
                made[kind.id] = f"{path.name}:{call.lineno}"
    return made


def test_the_number_of_every_finding_says_what_it_is(scanned):
    declared = {}
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.parse(path.read_text("utf-8")).body:
            call = node.value if isinstance(node, ast.Assign) else None
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "declare":
                declared.setdefault(node.targets[0].id, []).append(call.args[0].value)
    made = kinds_with_a_number()
    assert len(made) > 30
    silent = [
        f"{place}: {name}"
        for name, place in made.items()
        if not all(KINDS[code].number for code in declared[name])
    ]
    assert silent == []
    found = headscan.load(scanned).findings
    assert found
    assert all(finding.unit for finding in found if finding.value is not None)
    assert f"<small>{found[0].unit}</small>" in headscan.load(scanned).page()
