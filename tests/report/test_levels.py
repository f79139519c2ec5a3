"""A finding has one level in JSON, terminal, page, card, list and exit status."""

import io
import json
import re

import numpy as np
import pytest
from rich.console import Console

import headscan
from headscan.cli.listing import _listed
from headscan.diagnosis.publish import markdown
from headscan.run.findings import named
from tests.command_line import headscan as command

SIGNS = {"alarm": "!", "notice": "·", "fine": "+"}
PROMPT = "Once upon a time"


def vectors(rows, offset):
    return np.random.default_rng(0).standard_normal((rows, 16)) + offset


MADE = {
    "scan": lambda: headscan.scan(vectors(2100, 9.0)),
    "scan of few": lambda: headscan.scan(vectors(300, 9.0)),
    "round": lambda: headscan.scan(vectors(2100, 0.0)),
    "compare": lambda: headscan.compare([vectors(400, 0.0), vectors(400, 2.0)], draws=19),
    "checkup": lambda: headscan.checkup(vectors(2100, 9.0)),
    "checkup of few": lambda: headscan.checkup(vectors(300, 9.0)),
    "attribute": lambda: headscan.attribute("gpt-vanilla", PROMPT, method="all"),
    "flow": lambda: headscan.flow("gpt-vanilla", PROMPT, at="block.0"),
    "weights": lambda: headscan.weights("gpt-vanilla"),
    "ntp": lambda: headscan.ntp(
        "stories", tokenizer="gpt-vanilla", order=1, max_tokens=200, groups=5, gap=1e-3
    ),
    "remedy": lambda: headscan.remedy(vectors(400, 9.0), partners=vectors(400, 9.0)),
    "damage": lambda: headscan.compare(
        "gpt-vanilla", against="q4_0", damage=True, text="stories", max_tokens=256, sample=64
    ),
    "privacy": lambda: headscan.privacy(
        "gpt-vanilla", text="stories", sites="block.0", windows=1, length=3, candidates=16
    ),
}


def printed(result):
    out = io.StringIO()
    Console(file=out, width=200, no_color=True).print(result.table(whole=True))
    return out.getvalue()


@pytest.mark.parametrize("name", MADE)
def test_a_finding_has_one_level_everywhere(name, tmp_path):
    result = MADE[name]()
    folder = tmp_path / "result"
    result.save(folder)
    document = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    levels = [(finding["level"], finding["code"]) for finding in document["findings"]]
    assert [(finding.level, finding.code) for finding in result.findings] == levels

    page = (folder / "report.html").read_text(encoding="utf-8")
    shown = re.findall(r'<li class="(alarm|notice|fine)">.*?<b class="code">(HS\d+)', page, re.S)
    words = re.findall(r"(\w+)</span></p>\s*</li>", page)
    if document["kind"] != "checkup":
        assert shown == levels
        assert words == [level for level, _ in levels]
    signs = re.findall(r"^([!·+]) (HS\d{3})", printed(result), re.M)
    assert signs == [(SIGNS[level], code) for level, code in levels]

    row = _listed(folder / "result.json")
    assert row.level == document["highest_level"] == result.highest_level
    if document["kind"] == "checkup":
        _on_the_sheet(result, page)
    failing = {code for level, code in levels if level != "fine"}
    assert set(named(result.findings, ["HS*"])) == failing


def _on_the_sheet(result, page):
    """The grid shows what result.json says, and `possible` where too little was read."""
    for finding in result.findings:
        state = "possible" if finding.possible else finding.level
        assert re.search(rf'<a class="{state}" href="#sheet-{finding.code}"', page)
        assert f"| {finding.code} |" in markdown(result)
        row = rf"\| {finding.code} \| [^|]+ \| (\*\*)?{finding.level}(\*\*)? \|"
        assert re.search(row, markdown(result))


def test_the_exit_status_follows_the_level(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("cone.npy", vectors(2100, 9.0))
    np.save("round.npy", vectors(2100, 0.0))
    assert command("scan", "cone.npy", "--fail-on", "HS101", "--out", "a").status == 3
    status = command("scan", "round.npy", "--fail-on", "HS1*", "--out", "b").status
    level = headscan.load("b").highest_level
    assert (level, status) in (("fine", 0), ("notice", 3))
