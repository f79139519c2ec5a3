"""The ledger's page: every claim under its source, safe to open, filtered without a script."""

from __future__ import annotations

import pytest

from headscan.errors import BadInput
from headscan.report import reproduce_page
from headscan.report.reproduce import STYLES, entry


@pytest.fixture
def document():
    claims = [
        {
            "number": number, "statement": f"Claim <b>{number}</b> holds.", "source": ("A <i>paper</i>", "Slides")[number % 2],
            "outcome": outcome, "why": "Because. The original: headscan invert meta-llama/Llama-2-7b", "seconds": 0.1,
            "measured": {"largest_difference": 1e-9, "accuracy": [1.0, 0.5], "unique": True, "none": None},
        }
        for number, outcome in enumerate(STYLES)
    ]  # fmt: skip
    return {
        "kind": "reproduce",
        "headscan": "0.1.0",
        "claims": claims,
        "protocol": {"command": "headscan reproduce", "seed": 0},
    }


def test_the_command_is_parted_from_the_reason(document):
    row = entry(document["claims"][0])
    assert (row["why"], row["command"]) == ("Because.", "headscan invert meta-llama/Llama-2-7b")
    assert dict(row["measured"])["accuracy"] == "1.00, 0.500"
    assert dict(row["measured"])["unique"] == "yes"


def test_a_result_without_claims_is_refused():
    with pytest.raises(BadInput, match="has no claims"):
        reproduce_page({"kind": "reproduce", "claims": []}, {})


@pytest.mark.browser
@pytest.mark.parametrize("width", [380, 1200])
def test_claims_fit_the_screen_and_the_filter_hides_the_others(chromium, document, tmp_path, width):
    path = tmp_path / "page.html"
    path.write_text(reproduce_page(document, {}))
    page = chromium.new_page(viewport={"width": width, "height": 800})
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    page.goto(path.as_uri())
    page.wait_for_selector("[data-figure] .main-svg")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator(".claim:visible").count() == 4
    page.check("#show-artefact")
    assert page.locator(".claim:visible").count() == 1
    assert "Claim <b>1</b> holds." in page.inner_text(".claim:visible")
    assert faults == []
    page.close()
