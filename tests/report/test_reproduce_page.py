"""The ledger's page: every claim under its source, safe to open, filtered without a script."""

from __future__ import annotations

import pytest

from headscan.claims.ledger import ClaimRecord, ReproduceResult
from headscan.report.pages.reproduce import SIGNS, entry
from headscan.run import BadInput, Protocol

PROTOCOL = Protocol(verb="reproduce", command="headscan reproduce", seed=0, versions={"headscan": "0.1.0"})


@pytest.fixture
def result():
    claims = [
        ClaimRecord(
            number=number, statement=f"Claim <b>{number}</b> holds.", source=("A <i>paper</i>", "Slides")[number % 2],
            outcome=outcome, why="Because. The original: headscan invert meta-llama/Llama-2-7b", seconds=0.1,
            measured={"largest_difference": 1e-9, "accuracy": [1.0, 0.5], "unique": True, "none": None},
        )
        for number, outcome in enumerate(SIGNS)
    ]  # fmt: skip
    return ReproduceResult(protocol=PROTOCOL, claims=claims)


def test_the_command_is_parted_from_the_reason(result):
    row = entry(result.claims[0])
    assert (row["why"], row["command"]) == ("Because.", "headscan invert meta-llama/Llama-2-7b")
    assert dict(row["measured"])["accuracy"] == "1.00, 0.500"
    assert dict(row["measured"])["unique"] == "yes"


def test_a_result_without_claims_is_refused():
    with pytest.raises(BadInput, match="has no claims"):
        ReproduceResult(protocol=PROTOCOL, claims=[]).page()


def test_the_terminal_has_every_verdict_and_the_file_every_number(result, capsys):
    from rich.console import Console

    console = Console(width=100)
    console.print(result.table())
    shown = capsys.readouterr().out
    assert all(outcome.split()[0] in shown for outcome in SIGNS)
    assert "Claim <b>1</b> holds." in shown
    assert [figure.name for figure in result.plot("verdicts").data] == [f"{s} {o}" for o, s in SIGNS.items()]
    assert "processor seconds" in result.page()


@pytest.mark.browser
@pytest.mark.parametrize("width", [380, 1200])
def test_claims_fit_the_screen_and_the_filter_hides_the_others(chromium, result, tmp_path, width):
    path = tmp_path / "page.html"
    path.write_text(result.page())
    page = chromium.new_page(viewport={"width": width, "height": 800})
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    page.goto(path.as_uri())
    page.wait_for_selector("[data-figure] .main-svg")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator(".claim:visible").count() == 4
    page.check("#show-artefact")
    assert page.locator(".claim:visible").count() == page.locator(".source:visible").count() == 1
    assert "Claim <b>1</b> holds." in page.inner_text(".claim:visible")
    assert faults == []
    page.close()
