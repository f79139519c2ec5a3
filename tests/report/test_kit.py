"""One page as a value, shown four ways."""

import io
import logging
from html.parser import HTMLParser

import pytest
import sample
from rich.console import Console

from headscan.report import present
from headscan.report.kit import (
    Cell,
    Figure,
    Head,
    Prose,
    Section,
    Table,
    Term,
    figures,
    page,
    section,
)
from headscan.report.kit.figures import heat
from headscan.report.kit.register import PAGES, SECTIONS, assemble
from headscan.run import BadInput
from headscan.scanner.result import ScanResult

DOCUMENT = {
    "kind": "demo",
    "headscan": "0.2",
    "models": [{"name": "m"}],
    "findings": [],
    "protocol": {"command": "headscan demo", "started": "2026-11-21T03:56:17+00:00"},
}


@pytest.fixture
def demo():
    @page("demo")
    def head(result):
        return Head(["m"], "A sentence.")

    @section("demo", 20)
    def second(result):
        table = Table(
            [Term("site"), Term("cosine", "How alike.", "x·y")],
            [("block.0", Cell(0.5, (0.4, 0.6)))],
            "All",
        )
        return Section("Second", "", [table])

    @section("demo", 10)
    def first(result):
        draw = lambda scale=1.0: figures.lines({"loss": ([1, 2], [3 * scale, 1.0])}, "step")  # noqa: E731
        return Section("First", "A lead.", [Figure("loss", draw, "Loss over steps", "The loss.")])

    yield sample.shown(DOCUMENT, kind="demo")
    PAGES._items.pop("demo")
    for name in [name for name in SECTIONS if name.startswith("demo.")]:
        SECTIONS._items.pop(name)


def test_sections_come_by_their_order_and_a_plug_ins_between(demo):
    @section("demo", 15)
    def brought(result):
        return Section("Brought by a plug-in", "", [Prose("Hello.")])

    assert [one.title for one in assemble(demo).sections] == [
        "First",
        "Brought by a plug-in",
        "Second",
    ]
    assert "Brought by a plug-in" in present.page(demo)


def test_every_page_has_glossary_protocol_and_data(demo):
    html = present.page(demo)
    for wanted in (
        "How alike.",
        "x·y",
        "headscan demo",
        "21 November 2026, 03:56 UTC",
        'data-take="result.json"',
        "Fig. 1.",
    ):
        assert wanted in html
    assert len(html) < 2_000_000


def test_a_plot_that_is_not_there_is_refused_with_the_names_there_are(demo):
    assert present.plot(demo).data[0].y == (3.0, 1.0)
    assert present.plot(demo, "loss", scale=2.0).data[0].y == (6.0, 1.0)
    with pytest.raises(BadInput, match=r"no figure 'nonsense'; there are: loss"):
        present.plot(demo, "nonsense")
    with pytest.raises(BadInput, match=r"no option 'colour'; it has: scale"):
        present.plot(demo, "loss", colour="red")
    with pytest.raises(BadInput, match="no page 'unheard'"):
        present.page(sample.shown(DOCUMENT, kind="unheard"))


def test_a_section_that_fails_is_told_and_the_others_stand(demo, caplog):
    @section("demo", 30)
    def broken(result):
        return {}["x"]

    with caplog.at_level(logging.CRITICAL):
        html = present.page(demo)
    assert "This part cannot be shown (KeyError:" in html
    assert "How alike." in html


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_the_terminal_shows_it_in_any_encoding(demo, encoding):
    @section("demo", 5)
    def symbols(result):
        return Section("Σ", "", [Table(["site", "σ ‖x‖ — ● 宮"], [("a…b", -0.25), ("cd", None)])])

    written = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    Console(file=written, width=80).print(present.table(demo))
    written.flush()
    text = written.buffer.getvalue().decode(encoding)
    assert "a.b" in text or "a…b" in text
    assert "-0.250" in text or "−0.250" in text
    assert "cosine" in text


def test_a_notebook_gets_findings_and_a_small_table(demo):
    document = DOCUMENT | {
        "findings": [{"code": "CONE", "level": "warning", "sentence": "<script>narrow</script>"}]
    }
    html = present.snippet(sample.shown(document, kind="demo"))
    tags = []

    class Tags(HTMLParser):
        def handle_starttag(self, tag, attrs):
            tags.append(tag)

    Tags().feed(html)
    assert "script" not in tags
    assert {"table", "li"} <= set(tags)
    assert "&lt;script&gt;narrow" in html
    assert len(html) < 20_000


def test_a_map_keeps_equal_tokens_apart():
    figure = heat([[1, 2], [3, None]], ["the", "the"], ["<b>", "<b>"])
    assert len(set(figure.data[0].x)) == 2
    assert len(set(figure.data[0].y)) == 2
    assert "<b>" not in "".join(figure.data[0].y)


def test_an_edited_result_still_has_a_page(caplog):
    document, arrays = sample.scan(("m", "n"), blocks=2, width=8, tokens=30)
    for key in ("nulls", "measures", "findings", "pictures", "protocol", "models"):
        with caplog.at_level(logging.CRITICAL):
            html = present.page(
                sample.shown({k: v for k, v in document.items() if k != key}, arrays)
            )
        assert "cannot be shown" not in html, key
    sites = [{k: v for k, v in entry.items() if k != "isoscore"} for entry in document["sites"]]
    sites[0] = {"model": "m", "site": "embedding"}
    assert "cannot be shown" not in present.page(sample.shown(document | {"sites": sites}, arrays))
    with pytest.raises(BadInput, match="no scan"):
        present.page(sample.shown(document | {"sites": []}, arrays))
    with pytest.raises(BadInput, match="sites"):
        ScanResult.of_document(sample.shown(document).document | {"sites": 3})
