import base64
import json
import re
import zlib
from html.parser import HTMLParser

import hostile
import pytest
import sample

from headscan.report import present
from headscan.report.kit.register import assemble
from headscan.run import BadInput
from headscan.scanner.colouring import Colouring


class Outline(HTMLParser):
    """The elements and the text of a page, scripts and styles apart."""

    def __init__(self, html: str):
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.words: list[str] = []
        self.inside = ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.inside = tag

    def handle_endtag(self, tag):
        self.inside = ""

    def handle_data(self, data):
        if self.inside not in ("script", "style"):
            self.words.append(data)


@pytest.fixture(scope="module")
def two():
    return sample.scan(("tiny-gpt", "minilm"), blocks=4, width=32, tokens=100)


def scan_page(document, arrays) -> str:
    return present.page(sample.shown(document, arrays))


def unpacked(html: str, name: str) -> str:
    text = re.search(f'id="{name}">(.*?)</script>', html, re.DOTALL)[1].replace("/", "<")
    sized = base64.b85decode(text)
    return zlib.decompress(sized[4 : 4 + int.from_bytes(sized[:4], "big")]).decode()


def data_of(html: str) -> dict:
    return json.loads(re.search(r'id="data">(.*)\n</script>', html)[1])


def test_the_page_carries_all_it_needs(two):
    outline = Outline(scan_page(*two))
    for tag, attributes in outline.tags:
        assert tag not in ("iframe", "img", "object", "embed", "base")
        for name in ("src", "srcset", "href", "action", "data"):
            assert attributes.get(name, "data:").startswith(("data:", "#")), (tag, attributes)
    scripts = [attributes for tag, attributes in outline.tags if tag == "script"]
    assert "plotly.js v" in unpacked(scan_page(*two), "plotly")
    assert len(scripts) == 9  # data, figures, files, later, plotly and four of our own


def test_600_tokens_at_13_sites_stay_small():
    html = scan_page(*sample.scan(("m", "n"), blocks=11, width=64, tokens=600, nulls=False))
    assert len(html.encode()) < 2_500_000


def test_every_number_and_every_finding_is_on_the_page(two):
    document, _ = two
    text = " ".join(" ".join(Outline(scan_page(*two)).words).split())
    for finding in document["findings"]:
        assert finding["code"] in text
        assert finding["sentence"] in text
    for entry in document["sites"] + document["nulls"]:
        assert f"{entry['average_cosine']:z.4f}".replace("-", "−") in text
        assert f"{entry['top_direction_share_without_sinks']:.4f}" in text
    for measure in document["measures"].values():
        assert measure["sentence"] in text
        assert measure["formula"] in text
    protocol = document["protocol"]
    assert protocol["command"] in text
    assert protocol["text"]["sha256"] in text
    assert document["models"][1]["sha256"]["model.safetensors"] in text
    assert all(version in text for version in protocol["versions"].values())


def test_hostile_text_makes_no_element():
    document, arrays = hostile.scan()
    outline = Outline(scan_page(document, arrays))
    assert [attributes for tag, attributes in outline.tags if tag in ("img", "i")] == []
    assert sum(tag == "script" for tag, _ in outline.tags) == 9
    assert not any(name.startswith("on") for _, attributes in outline.tags for name in attributes)
    assert document["findings"][0]["sentence"] in outline.words
    clouds = data_of(scan_page(document, arrays))["data"]["clouds"]
    assert clouds[0]["tokens"] == document["pictures"][document["models"][0]["name"]]["tokens"]


def test_a_lone_surrogate_does_not_keep_the_page_from_being_written(two):
    document, arrays = two
    page = scan_page(
        document | {"findings": [document["findings"][0] | {"sentence": "half \ud83d"}]}, arrays
    )
    assert "half ?" in page.encode("utf-8").decode()


def test_a_null_is_a_dash_with_its_reason(two):
    document, _ = two
    sites = [dict(entry) for entry in document["sites"]]
    sites[0] |= {"isoscore": None, "isoscore_interval": None, "notes": ["width is 1"]}
    page = assemble(sample.shown(document | {"sites": sites}))
    table = next(section for section in page.sections if section.name == "numbers").parts[0]
    first = table.lines[0]
    assert [cell.value for cell in first.cells].count(None) == 1
    assert {cell.why for cell in first.cells} == {"width is 1"}
    assert first.marks == [1]
    assert table.footnotes == ["width is 1"]


def test_alternative_texts_carry_the_numbers(two):
    document, _ = two
    outline = Outline(scan_page(*two))
    labels = {a["data-figure"]: a["aria-label"] for _, a in outline.tags if "data-figure" in a}
    mine = [
        e["average_cosine_without_sinks"] for e in document["sites"] if e["model"] == "tiny-gpt"
    ]
    assert (
        f"tiny-gpt: from {mine[0]:.3f} to {mine[-1]:.3f}, lowest {min(mine):.3f}, highest "
        f"{max(mine):.3f}." in labels["cosine"]
    )
    values = document["sites"][0]["singular_values_without_sinks"]
    assert f"embedding: from 1.00 to {values[-1] / values[0]:.3f}." in labels["spectrum-0"]
    assert all(len(text) > 20 for text in labels.values())


@pytest.mark.parametrize(
    "document", [{}, {"kind": "ntp"}, {"kind": "scan", "models": [], "sites": []}]
)
def test_another_document_is_refused(document):
    with pytest.raises(BadInput, match="no scan"):
        scan_page(document, {})


def coloured(values, kind="category", column="<b>lang</b>"):
    """A document whose picture is coloured by a column."""
    document, arrays = sample.scan(("tiny-gpt",), blocks=2, width=16, tokens=len(values))
    colour = Colouring(column, kind, values)
    picture = document["pictures"]["tiny-gpt"] | {"colour": colour}
    return document | {"pictures": {"tiny-gpt": picture}}, arrays


def test_the_ten_most_frequent_values_have_colours_and_a_table():
    values = [f"v{number}" for number in range(14) for _ in range(20 - number)]
    values += [None] * 6 + ["</script><img src=x>"] * 30
    html = scan_page(*coloured(values))
    outline = Outline(html)
    column = data_of(html)["data"]["column"]
    labels = [entry["label"] for entry in column["legend"]]
    top = ["</script><img src=x>", *[f"v{number}" for number in range(9)]]
    assert labels == [*top, "5 other values", "no value"]
    assert [entry["count"] for entry in column["legend"]][-2:] == [45, 6]
    assert [entry["colour"] for entry in column["legend"]] == [*range(10), -1, -1]
    shown = [labels[code] for code in column["codes"][0]]
    assert all(
        label == (value or "no value") or (label == "5 other values" and value not in top)
        for label, value in zip(shown, values, strict=True)
    )
    buttons = [attributes for tag, attributes in outline.tags if "data-code" in attributes]
    assert [attributes["aria-pressed"] for attributes in buttons] == ["false"] * 12
    assert [attributes for tag, attributes in outline.tags if tag == "img"] == []
    words = " ".join(" ".join(outline.words).split())
    assert "Sampled vectors by <b>lang</b>" in words
    assert f"v0 20 {20 / len(values):.0%}".replace("%", " %") in words


@pytest.mark.parametrize(
    ("kind", "values", "ends"),
    [
        ("number", [2.0, None, 10.0, 4.0], ["2.00", "10"]),
        ("number", [3.0, 3.0], ["3.00", "3.00"]),
        ("number", [None, None], ["no value", "no value"]),
        ("date", ["2020-01-05", "0001-01-01", None, "9999-12-31"], ["0001-01-01", "9999-12-31"]),
        ("date", ["2020-01-01T00:00:00+09:00", "2020-01-01"], ["2020-01-01", "2020-01-01"]),
    ],
)
def test_numbers_and_dates_have_a_scale(kind, values, ends):
    values = values * 20
    html = scan_page(*coloured(values, kind))
    column = data_of(html)["data"]["column"]
    (shares,) = column["shares"]
    assert [end.partition("T")[0].partition("+")[0] for end in column["ends"]] == ends
    assert [share is None for share in shares] == [value is None for value in values]
    known = [share for share in shares if share is not None]
    assert all(0 <= share <= 1 for share in known)
    if len(set(values) - {None}) > 1:
        assert (min(known), max(known)) == (0, 1)
