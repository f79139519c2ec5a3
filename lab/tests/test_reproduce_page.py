"""The ledger's page: every claim under its document with its evidence, safe to open, filtered
without a script.
"""

import pytest
from headscan_lab.ledger.experiment import VERDICTS, Power, Region, StandIn
from headscan_lab.ledger.figures import Curve, RedrawnFigure
from headscan_lab.ledger.record import ClaimEvidence, ClaimRecord
from headscan_lab.ledger.run import ReproduceResult
from headscan_lab.pages.reproduce import entry

from headscan.run import BadInput, Protocol

PROTOCOL = Protocol(
    verb="reproduce", command="headscan reproduce", seed=0, versions={"headscan": "0.2.0"}
)


def record(number: int, verdict: str) -> ClaimRecord:
    large = verdict == "not tested"
    shown = ClaimEvidence(
        side="for",
        name="tokens <i>found</i>",
        value=0.25,
        interval=(0.125, 0.5),
        unit="share of tokens",
        chance=0.0625,
        tokens=240,
        prompts=40,
        seeds=5,
    )
    return ClaimRecord(
        id=number,
        document=("slides", "paper", "article")[number % 3],
        place="Sec. 1",
        statement=f"Claim <b>{number}</b> holds.",
        model="meta-llama/Llama-2-7b" if large else "any model",
        data="prompts",
        quantity="share of tokens",
        counts=Region(None, 0.5),
        control=Region(0.9, None),
        test="Wilson's interval",
        scope="the stand-in",
        needs=Power(),
        stand_ins=[StandIn("a small model", "It is small.")],
        verdict=verdict,
        tendency="supported" if large else verdict,
        more=12 if verdict == "undecided" else None,
        why="Because.",
        effect=0.25,
        interval=(0.125, 0.5),
        unit="share of tokens",
        chance=0.0625,
        tokens=240,
        prompts=40,
        seeds=5,
        models=["small, seed 0"],
        evidence=[shown],
        command="headscan invert meta-llama/Llama-2-7b" if large else "",
        seconds=0.1,
    )


@pytest.fixture
def result():
    return ReproduceResult(
        protocol=PROTOCOL, claims=[record(n, verdict) for n, verdict in enumerate(VERDICTS)]
    )


def test_a_claim_is_told_with_its_evidence_and_protocol(result):
    row = entry(result.claims[3])
    assert row["more"] == "At the effect seen, 12 more prompts would decide."
    assert row["evidence"] == [
        (
            "for",
            "tokens <i>found</i>",
            "0.250 [0.125, 0.500]",
            "0.062",
            "240 tokens, 40 prompts, 5 seeds",
        )
    ]
    protocol = dict(row["protocol"])
    assert protocol["would count"] == "at most 0.5"
    assert protocol["power"] == "at least 5 seeds and 200 tokens"
    assert entry(result.claims[5])["tendency"] == "supported"
    assert entry(result.claims[0])["tendency"] is None


def test_a_result_without_claims_is_refused():
    with pytest.raises(BadInput, match="has no claims"):
        ReproduceResult(protocol=PROTOCOL, claims=[]).page()


def test_the_terminal_has_every_verdict_and_the_file_every_number(result, capsys):
    from rich.console import Console

    console = Console(width=100)
    console.print(result.table())
    shown = capsys.readouterr().out
    assert all(verdict.split()[0] in shown for verdict in VERDICTS)
    assert "Claim <b>1</b> holds." in shown
    page = result.page()
    assert "Stand-in: a small model." in page
    assert "headscan invert meta-llama/Llama-2-7b" in page
    assert "tokens &lt;i&gt;found&lt;/i&gt;" in page


@pytest.mark.browser
@pytest.mark.parametrize("width", [380, 1200])
def test_claims_fit_the_screen_and_the_filter_hides_the_others(
    chromium_without_webgl, result, tmp_path, width
):
    path = tmp_path / "page.html"
    path.write_text(result.page())
    page = chromium_without_webgl.new_page(viewport={"width": width, "height": 800})
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on(
        "console", lambda message: faults.append(message.text) if message.type == "error" else None
    )
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready]", state="attached")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator(".claim:visible").count() == 6
    page.check("#show-confounded")
    assert page.locator(".claim:visible").count() == page.locator(".source:visible").count() == 1
    assert "Claim <b>2</b> holds." in page.inner_text(".claim:visible")
    assert faults == []
    page.close()


def test_redrawn_figures_stand_beside_what_was_published():
    """Those with curves are drawn (bars where they stand at names), those without say why not."""
    figures = [
        RedrawnFigure(
            id="paper-x",
            document="paper",
            place="Fig. 9",
            title="Loss",
            published="It falls.",
            across="step",
            up="nats",
            log="xy",
            curves=[Curve("ours", [1.0, 10.0], [2.0, 0.5])],
        ),
        RedrawnFigure(
            id="paper-y",
            document="paper",
            place="Fig. 10",
            title="Bars",
            published="Two.",
            curves=[Curve("ours", ["a", "b"], [1.0, 2.0])],
        ),
        RedrawnFigure(
            id="paper-z",
            document="paper",
            place="Fig. 11",
            title="Map",
            published="A map.",
            why_not="No data.",
        ),
    ]
    result = ReproduceResult(protocol=PROTOCOL, claims=[], figures=figures)
    page = result.page()
    for sentence in ("Fig. 9. Published: It falls.", "No data.", "3 figures of a document"):
        assert sentence in page
    assert [trace.type for trace in result.plot("paper-y").data] == ["bar"]
    assert result.plot("paper-x").layout.yaxis.type == "log"
