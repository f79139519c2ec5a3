"""What a reader does with a page, by clicking: sorts, filters, takes, zooms, selects, follows
tokens, lays a result beside it.
"""

import csv
import json
from pathlib import Path

import pytest
import sample

from headscan.report import present

pytestmark = pytest.mark.browser

COLUMN = (
    "(table) => [...table.tBodies[0].rows].filter((row) => !row.hidden).map((row) => "
    "row.cells[{}].firstChild.textContent)"
)
SHOWN = (
    "[document.getElementById('layer-name').textContent, document.getElementById('find').value, "
    "location.hash]"
)


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    document, arrays = sample.scan(("tiny-gpt", "minilm"), blocks=11, width=32, tokens=120)
    path = tmp_path_factory.mktemp("tools") / "report.html"
    path.write_text(present.page(sample.shown(document, arrays)), encoding="utf-8")
    return document, arrays, path


@pytest.fixture(scope="module")
def opened(material, chromium_without_webgl, visit):
    with visit(chromium_without_webgl, material[2], color_scheme="light") as opened:
        yield opened


@pytest.fixture
def page(opened):
    yield opened.page
    opened.page.evaluate("Headscan.select({ site: '', token: '', colour: '' })")
    opened.clean()


def downloaded(page, button) -> Path:
    with page.expect_download() as download:
        button.click()
    return Path(download.value.path())


def test_contents_lead_to_every_section(page):
    page.locator(".contents summary").click()
    links = page.locator(".contents nav a")
    targets = [link.get_attribute("href") for link in links.all()]
    assert targets[0] == "#findings-title"
    assert targets[-2:] == ["#glossary", "#protocol"]
    assert all(page.locator(target).count() == 1 for target in targets)
    sections = page.locator("section[id]").evaluate_all("(all) => all.map((one) => '#' + one.id)")
    assert sections == targets[1:]
    links.last.click()
    assert page.locator(".contents[open]").count() == 0
    page.evaluate("location.hash = ''")


def numbers(texts: list[str]) -> list[float]:
    return [float(text.replace(",", "").replace("−", "-")) for text in texts]


def test_a_table_is_sorted_by_any_column_and_put_back(page):
    table = page.locator("#numbers table").first
    cells_before = table.evaluate(COLUMN.format(3))
    head = table.locator("thead tr").last.locator("th").nth(3)
    for state, down in (("descending", True), ("ascending", False)):
        head.locator("button").click()
        assert head.get_attribute("aria-sort") == state
        shown = numbers(table.evaluate(COLUMN.format(3)))
        assert shown == sorted(shown, reverse=down)
        assert sorted(shown) == sorted(numbers(cells_before))
    head.locator("button").click()
    assert head.get_attribute("aria-sort") is None
    assert table.evaluate(COLUMN.format(3)) == cells_before


def test_a_filtered_table_is_taken_as_it_is_shown(page):
    table = page.locator("#numbers table").first
    field = page.locator("#numbers .tools input").first
    rows = table.locator("tbody tr").count()
    assert rows == 13
    field.fill("block.1")
    assert table.evaluate(COLUMN.format(0)) == ["block.1", "block.10"]
    assert page.locator("#numbers .tools .soft").first.text_content() == "2 of 13"
    path = downloaded(page, page.locator("#numbers .tools [data-take=csv]").first)
    with path.open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert {line["row"] for line in lines} == {"block.1", "block.10"}
    assert {line["table"] for line in lines} == {"tiny-gpt"}
    field.fill("no such row")
    assert table.evaluate(COLUMN.format(0)) == []
    field.fill("")
    assert len(table.evaluate(COLUMN.format(0))) == rows


def test_a_figure_zooms_and_every_line_answers_at_a_place(page):
    figure = page.locator("[data-figure=cosine]")
    figure.scroll_into_view_if_needed()
    extent = "document.querySelector('[data-figure=cosine]')._fullLayout.xaxis.range"
    box = figure.bounding_box()
    extent_before = page.evaluate(extent)
    across = [box["x"] + box["width"] * share for share in (0.4, 0.7)]
    up = box["y"] + box["height"] * 0.5
    page.mouse.move(across[0], up)
    page.wait_for_function("document.querySelector('[data-figure=cosine] .hoverlayer .legend')")
    names = page.locator("[data-figure=cosine] .hoverlayer .legendtext").all_text_contents()
    assert any("tiny-gpt" in name for name in names)
    assert any("minilm" in name for name in names)
    page.mouse.down()
    page.mouse.move(across[1], up, steps=4)
    page.mouse.up()
    page.wait_for_timeout(200)
    low, high = page.evaluate(extent)
    assert extent_before[0] < low < high < extent_before[1]
    page.mouse.dblclick(across[0], up)
    page.wait_for_timeout(500)
    assert page.evaluate(extent) == extent_before


def test_a_figure_is_taken_as_svg_and_png(page):
    for name, start in (("svg", b"<svg"), ("png", b"\x89PNG")):
        path = downloaded(page, page.locator(f".of-picture [data-take={name}]").first)
        assert path.read_bytes().startswith(start)


def test_the_page_turns_dark_whatever_the_system_says(page):
    paper = "getComputedStyle(document.documentElement).backgroundColor"
    line = (
        "document.querySelector('[data-figure=cosine]')._fullData.find((trace) => trace.mode === "
        "'lines+markers').line.color"
    )
    light = page.evaluate(paper), page.evaluate(line)
    page.locator("#theme").click()
    assert page.locator("#theme").text_content() == "light"
    assert page.evaluate(paper) != light[0]
    page.wait_for_function(f"{line} !== '{light[1]}'")
    page.emulate_media(color_scheme="dark")
    page.locator("#theme").click()
    assert page.evaluate(paper) == light[0]
    page.emulate_media(color_scheme="light")


def test_a_site_is_selected_by_its_row_its_slider_and_its_address_alike(page):
    lines = (
        "document.querySelector('[data-figure=cosine]').layout.shapes.filter((one) => one.name "
        "=== 'selected').length"
    )
    page.locator("#numbers tbody th bdi", has_text="block.2").first.click()
    assert page.evaluate(SHOWN) == ["block.2", "", "#site=block.2"]
    assert (
        page.locator("tr.here")
        .evaluate_all("(rows) => rows.map((row) => row.cells[0].textContent)")
        .count("block.2")
        >= 2
    )
    assert page.evaluate(lines) == 1
    page.locator("#layer").press("ArrowRight")
    assert page.evaluate(SHOWN) == ["block.3", "", "#site=block.3"]
    assert all(text == "block.3" for text in page.locator("tr.here th bdi").all_text_contents())
    page.evaluate("location.hash = '#site=block.7&token=the&colour=sink'")
    page.wait_for_function("document.getElementById('layer-name').textContent === 'block.7'")
    assert page.locator("#find").input_value() == "the"
    assert page.locator("#colour").input_value() == "sink"
    assert page.locator(".scale .unit").text_content().startswith("sink token")


def test_found_tokens_are_listed_and_followed_with_their_neighbours(material, page):
    document, arrays, _ = material
    picture = document["pictures"]["tiny-gpt"]
    page.evaluate("Headscan.select({ site: 'block.4' })")
    page.locator("#find").fill("the")
    hits = [k for k, token in enumerate(picture["tokens"]) if token == " the"]
    listed = page.locator(".lists").first.locator("ol").first.locator("li")
    assert listed.count() == min(len(hits), 10)
    listed.first.locator("button").click()
    assert (
        picture["before"][hits[0]] + " the" + picture["after"][hits[0]]
        == page.locator(".readout .context").first.text_content()
    )
    neighbours = page.locator(".lists").first.locator("ol").last.locator("li").all_text_contents()
    rows, cosines = (
        arrays[f"picture_near{part}/tiny-gpt/block.4"][hits[0]] for part in ("", "_cosine")
    )
    expected = [
        (f"{cosine:.2f}: ", picture["tokens"][row].strip())
        for row, cosine in zip(rows, cosines, strict=True)
        if row >= 0
    ]
    assert len(neighbours) == len(expected)
    for line, (cosine, token) in zip(neighbours, expected, strict=True):
        assert line.startswith(cosine.replace("-", "-"))
        assert token in line
    page.locator("#layer").press("ArrowRight")
    assert (
        page.locator(".lists").first.locator("ol").last.locator("li").all_text_contents()
        != neighbours
    )
    page.locator("#labels").check()
    names = page.evaluate("document.querySelector('.scene').data.at(-1).text")
    assert names[0] == "the"
    assert 1 < len(names) <= 40
    page.locator("#labels").uncheck()
    listed.first.locator("button").click()  # lets it go


def test_the_clouds_have_one_camera(material, chromium, visit):
    with visit(chromium, material[2]) as opened:
        eyes = (
            "[...document.querySelectorAll('.scene')].map((scene) => "
            "JSON.stringify(scene._fullLayout.scene.camera.eye))"
        )
        turned = (
            "Plotly.relayout(document.querySelectorAll('.scene')[1], {'scene.camera': {eye: {x: "
            "2, y: 0.5, z: 0.25}}})"
        )
        opened.page.evaluate(turned)
        opened.page.wait_for_timeout(500)
        assert set(opened.page.evaluate(eyes)) == {'{"x":2,"y":0.5,"z":0.25}'}
        opened.clean()


def lay(page, tmp_path, value) -> str:
    path = tmp_path / "other.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    page.locator("#beside-file").set_input_files(path)
    page.wait_for_selector("#beside-section")
    text = page.locator("#beside-section").text_content()
    page.evaluate("document.getElementById('beside-section').remove()")
    return text


def test_a_second_result_is_laid_beside_the_first(page, tmp_path):
    document = json.loads(page.evaluate("Headscan.inflated('files')"))
    assert " 0 differ" in lay(page, tmp_path, document)
    changed = json.loads(json.dumps(document))
    row = changed["sites"][3]
    row["mean_norm"] += 100
    row["average_cosine"] = 0.99
    row["average_cosine_interval"] = [0.98, 1.0]
    text = lay(page, tmp_path, changed)
    assert " 2 differ" in text
    assert f"sites[{row['model']} {row['site']}] mean_norm" in text
    assert "apart" in text
    row["site"] = "<img src=x onerror=window.pwned=1>"
    assert "only in this result" in lay(page, tmp_path, changed)
    assert page.evaluate("window.pwned") is None
    changed["protocol"]["verb"] = "flow"
    assert "no numbers in common" in lay(page, tmp_path, changed)
    for wrong in ("[1, 2", "[1, 2]", "null", "{}"):
        assert "This file is no result of headscan." in lay(page, tmp_path, wrong)
