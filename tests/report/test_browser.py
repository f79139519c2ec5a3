"""The scan's page as a reader has it: in a browser, without a network, with hostile text all
through it.
"""

import csv
import re
from itertools import pairwise
from pathlib import Path

import hostile
import pytest
import sample

from headscan.report import present
from headscan.scanner.colouring import Colouring

pytestmark = pytest.mark.browser

HOVERED = (
    "document.querySelector('#tip').hidden ? null : document.querySelector('#tip "
    ".context').textContent"
)
INSIDE = """() => {
  const scene = document.querySelector('.scene');
  const layout = scene._fullLayout;
  const data = scene.data[0];
  const box = scene.getBoundingClientRect();
  const left = (x) => box.left + layout.xaxis._offset + layout.xaxis.l2p(x);
  const top = (y) => box.top + layout.yaxis._offset + layout.yaxis.l2p(y);
  return data.x.map((x, k) => Number.isFinite(x) ? [left(x), top(data.y[k])] : null); }"""


def write(tmp_path, document, arrays, name="report.html"):
    path = tmp_path / name
    path.write_text(present.page(sample.shown(document, arrays)), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    return write(
        tmp_path_factory.mktemp("two"),
        *sample.scan(("tiny-gpt", "minilm"), blocks=4, width=32, tokens=300),
    )


@pytest.fixture(scope="module")
def nasty(tmp_path_factory):
    document, arrays = hostile.scan()
    return document, write(tmp_path_factory.mktemp("nasty"), document, arrays)


@pytest.fixture(scope="module")
def looked_at(two, chromium_without_webgl, visit):
    """The page opened once for what only looks at it, or puts back what it changes."""
    with visit(chromium_without_webgl, two) as opened:
        yield opened


@pytest.fixture(scope="module")
def nasty_page(nasty, chromium_without_webgl, visit):
    """The hostile document and its page, opened once."""
    with visit(chromium_without_webgl, nasty[1]) as opened:
        yield nasty[0], opened


@pytest.fixture(scope="module")
def nasty_scenes(nasty, chromium, visit):
    """The same page with its scenes in three dimensions, which take the processor seconds to
    open.
    """
    with visit(chromium, nasty[1]) as opened:
        yield nasty[0], opened


def context_of(picture: dict, index: int) -> str:
    return picture["before"][index] + picture["tokens"][index] + picture["after"][index]


def test_hostile_text_is_shown_as_it_is_in_three_dimensions(nasty_scenes):
    document, opened = nasty_scenes
    picture = next(iter(document["pictures"].values()))
    contexts = {context_of(picture, k) for k in range(len(picture["tokens"]))}
    page = opened.page
    scene = page.locator(".scene").first
    scene.scroll_into_view_if_needed()
    box = scene.bounding_box()
    shown_contexts = set()
    for down in range(30, 75, 5):
        for along in range(20, 85, 5):
            point = box["x"] + box["width"] * along / 100, box["y"] + box["height"] * down / 100
            page.mouse.move(*point)
            page.wait_for_timeout(12)
            shown = page.evaluate(HOVERED)
            if shown is not None:
                shown_contexts.add(shown)
                spot = point
        if len(shown_contexts) >= 3:
            break
    assert shown_contexts
    assert shown_contexts <= contexts
    if page.evaluate(HOVERED) is None:  # back to the dots
        page.mouse.move(*spot)
        page.wait_for_function("!document.querySelector('#tip').hidden")
    page.mouse.down()
    page.mouse.up()
    page.wait_for_function("document.querySelector('.readout .context')")
    assert page.locator(".readout .context").first.text_content() in contexts
    opened.clean()


def test_hostile_text_is_shown_as_it_is_without_webgl(nasty_page):
    document, opened = nasty_page
    picture = next(iter(document["pictures"].values()))
    page = opened.page
    assert page.locator("#fallback").is_visible()
    page.locator(".scene").first.scroll_into_view_if_needed()
    page.evaluate("scrollBy(0, 60)")
    seen_tokens = set()
    spots = page.evaluate(INSIDE)
    for index, spot in enumerate(spots):
        if spot is None:
            continue
        page.mouse.move(spot[0] - 40, spot[1] - 40)
        page.mouse.move(spot[0], spot[1])
        # Where two dots lie on one another, the nearer one answers: then its own words must be
        # right.
        nearest = [
            k
            for k, neighbour in enumerate(spots)
            if neighbour and abs(neighbour[0] - spot[0]) + abs(neighbour[1] - spot[1]) < 16
        ]
        contexts = {context_of(picture, k) for k in nearest}
        for _ in range(20):  # plotly looks for a point at most every 50 ms
            page.wait_for_timeout(20)
            shown = page.evaluate(HOVERED)
            if shown in contexts:
                break
        assert shown in contexts, index
        seen_tokens.add(picture["tokens"][index])
    assert len(seen_tokens) >= 20
    assert page.locator("mark script, mark b, mark img, .tip script, .tip img").count() == 0
    opened.clean()


def test_a_hostile_model_name_is_literal_in_plots_and_headings(nasty_page):
    document, opened = nasty_page
    names = [model["name"] for model in document["models"]]
    page = opened.page
    size_before = page.viewport_size
    page.set_viewport_size({"width": 380, "height": 800})
    page.wait_for_function("document.documentElement.scrollWidth <= 380")
    headings = page.locator("h1 bdi").all_text_contents()
    assert headings == names
    legend = page.locator("[data-figure=cosine] .legendtext").all_text_contents()
    assert any(
        "<script>window.pwned=1;alert(1)</script>" in text and "<b>bold</b>" in text
        for text in legend
    )
    assert any("%{x} %{customdata[0]}$\\alpha$" in text for text in legend)
    assert page.locator("[data-figure] b, [data-figure] img").count() == 0
    page.set_viewport_size(size_before)
    opened.clean()


def test_the_slider_turns_the_layers_of_all_models_by_keyboard(nasty_scenes):
    _, opened = nasty_scenes
    page = opened.page
    slider = page.locator("#layer")
    slider.focus()
    page.keyboard.press("Home")
    page.wait_for_timeout(300)
    first = [page.locator(".scene").nth(k).screenshot() for k in (0, 1)]
    assert page.locator("#layer-name").text_content() == "embedding"
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    page.wait_for_timeout(300)
    assert page.locator("#layer-name").text_content() == "block.2"
    assert slider.get_attribute("aria-valuetext") == "block.2"
    assert all(
        "block.2: average cosine" in text
        for text in page.locator(".panel .site").all_text_contents()
    )
    assert page.locator(".film button[aria-current=true]").count() == 2
    assert all(page.locator(".scene").nth(k).screenshot() != first[k] for k in (0, 1))
    page.locator(".film button").first.click()
    assert page.locator("#layer-name").text_content() == "embedding"
    opened.clean()


def test_play_goes_through_the_layers_and_stops(looked_at):
    page = looked_at.page
    layer_before = page.locator("#layer").input_value()
    page.locator("#play").press("Enter")
    page.wait_for_function(f"document.getElementById('layer').value !== '{layer_before}'")
    assert page.locator("#play").get_attribute("aria-pressed") == "true"
    page.locator("#play").press("Enter")
    still = page.locator("#layer").input_value()
    page.wait_for_timeout(1000)
    assert page.locator("#layer").input_value() == still
    page.locator("#layer").press("End")
    looked_at.clean()


def test_a_token_is_found_and_followed(looked_at):
    page = looked_at.page
    page.locator("#layer").press("End")
    page.locator("#find").fill("the")
    page.wait_for_timeout(200)
    tokens, matches = page.evaluate(
        "[Headscan.data.clouds[0].tokens, document.querySelector('.scene').data[2].customdata]"
    )
    assert matches == [k for k, token in enumerate(tokens) if token == " the"] != []
    page.locator("#find").fill("")
    page.locator(".scene").first.scroll_into_view_if_needed()
    x, y = next(spot for spot in page.evaluate(INSIDE) if spot)
    page.mouse.click(x, y)
    page.wait_for_timeout(200)
    mark = page.locator(".readout mark").text_content()
    page.locator("#layer").focus()
    page.keyboard.press("ArrowLeft")
    assert page.locator(".readout mark").text_content() == mark
    assert page.evaluate("document.querySelector('.scene').data[2].customdata.length") == 1
    page.evaluate("Headscan.select({ site: '', token: '' })")
    looked_at.clean()


def test_sinks_are_switched_in_every_plot(looked_at):
    shown = """[...document.querySelectorAll('[data-figure]')].map((figure) => {
        const traces = figure.data.filter((trace) => trace.visible !== false);
        return [...new Set(traces.map((trace) => trace.meta.first))].join(); })"""
    page = looked_at.page
    for treatment, opposite in (("without", "with"), ("with", "without")):
        assert set(page.evaluate(shown)) == {treatment}
        page.locator(f"input[value={opposite}]").check()
        page.wait_for_timeout(300)
    looked_at.clean()


def test_dark_is_followed_and_print_is_light(looked_at):
    line = (
        "document.querySelector('[data-figure=cosine]')._fullData.find((t) => t.mode === "
        "'lines+markers').line.color"
    )
    ink = "getComputedStyle(document.body).color"
    pixels = """(() => {
        const still = document.querySelector('.still');
        const image = still.getContext('2d').getImageData(0, 0, still.width, still.height);
        return image.data.some((v) => v > 0); })()"""
    page = looked_at.page
    page.emulate_media(color_scheme="light")
    light = page.evaluate(line)
    light_ink = page.evaluate(ink)
    page.emulate_media(color_scheme="dark")
    page.wait_for_timeout(400)
    dark = page.evaluate(line)
    assert dark != light
    assert page.evaluate(ink) != light_ink
    assert not page.evaluate(pixels)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(line) == light
    assert page.evaluate(pixels)
    assert page.evaluate("[...document.querySelectorAll('details')].every((d) => d.open)")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate(ink) == light_ink
    assert page.locator(".still").first.is_visible()
    assert not page.locator(".scene").first.is_visible()
    page.emulate_media(media="screen", color_scheme="dark")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.wait_for_timeout(300)
    assert page.evaluate(line) == dark
    page.emulate_media(media="screen", color_scheme="light")
    page.wait_for_timeout(300)
    looked_at.clean()


def test_no_width_scrolls_the_page_sideways(looked_at):
    pictures = "[...document.querySelectorAll('.plot .main-svg, .scene .main-svg')]"
    right = f"Math.max(...{pictures}.map((picture) => picture.getBoundingClientRect().right))"
    page = looked_at.page
    size_before = page.viewport_size
    for width in (1440, 768, 380, 320):
        page.set_viewport_size({"width": width, "height": 800})
        page.wait_for_function(f"{right} <= {width}")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.set_viewport_size(size_before)
    looked_at.clean()


def test_what_a_listener_needs_is_there(looked_at):
    page = looked_at.page
    levels = page.evaluate(
        "[...document.querySelectorAll('h1, h2, h3')].map((h) => Number(h.tagName[1]))"
    )
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(next_level - level <= 1 for level, next_level in pairwise(levels))
    for label in page.evaluate(
        "[...document.querySelectorAll('[role=img]')].map((e) => e.getAttribute('aria-label'))"
    ):
        assert len(label) > 20
    named = (
        "[...document.querySelectorAll('input, button')].map((e) => e.labels?.length || "
        "e.textContent || e.ariaLabel)"
    )
    assert all(page.evaluate(named))
    looked_at.clean()


def test_a_page_without_pictures_nulls_or_values_opens(tmp_path, chromium_without_webgl, visit):
    document, _ = sample.scan(("m",), blocks=2, width=8, tokens=30, nulls=False)
    for entry in document["sites"]:
        entry |= {key: None for key in entry if key not in ("model", "site", "depth", "notes")}
        entry["notes"] = ["the activations are not finite"]
    document |= {"pictures": {}, "findings": [], "measures": {}}
    with visit(chromium_without_webgl, write(tmp_path, document, {})) as opened:
        assert "the activations are not finite" in opened.page.locator(".footnotes").text_content()
        assert (
            opened.page.locator("td.missing abbr").first.get_attribute("title")
            == "the activations are not finite"
        )
        opened.clean()


INTRUDERS = {
    "script": "const s = document.createElement('script'); s.textContent = 'window.pwned = 1'; "
    "document.head.append(s)",
    "handler": "document.body.insertAdjacentHTML('beforeend', '<img src=data: "
    "onerror=window.pwned=2>')",
    "address": "const a = document.createElement('a'); a.href = 'javascript:window.pwned=3'; "
    "document.body.append(a); a.click()",
    "text as code": "setTimeout('window.pwned = 4', 0)",
    "style": "document.body.insertAdjacentHTML('beforeend', '<p id=painted "
    'style="position:fixed">\')',
    "styles": "const s = document.createElement('style'); s.textContent = 'p { position: fixed "
    "}'; document.head.append(s)",
}


def test_the_policy_runs_and_paints_nothing_but_its_own(two, chromium_without_webgl, visit):
    code = """async () => {
        const figure = document.querySelector('[data-figure]');
        await Plotly.react(figure, figure.data, figure.layout, {displayModeBar: true});
        const formats = ['svg', 'png'].map((format) => Plotly.toImage(figure, {format}));
        const pictures = await Promise.all(formats);
        const position = getComputedStyle(figure.querySelector('.modebar')).position;
        return [position, ...pictures.map((picture) => picture.slice(0, 14))]; }"""
    with visit(chromium_without_webgl, two) as opened:
        assert opened.page.evaluate(code) == ["absolute", "data:image/svg", "data:image/png"]
        sized = "[...document.querySelectorAll('[data-figure]')].map((place) => place.clientHeight)"
        assert min(opened.page.evaluate(sized)) >= 150
        assert "unsafe" not in opened.page.locator("meta[http-equiv]").get_attribute("content")
        opened.clean()
        for way, script in INTRUDERS.items():
            opened.errors.clear()
            opened.page.evaluate(f"() => {{ {script} }}")
            opened.page.wait_for_timeout(100)
            assert opened.page.evaluate("window.pwned") is None, way
            fixed = (
                "[...document.querySelectorAll('p')].filter((p) => getComputedStyle(p).position "
                "=== 'fixed').length"
            )
            assert opened.page.evaluate(fixed) == 0, way
            assert any("Content Security Policy" in error for error in opened.errors), way


def test_no_cell_of_the_tables_is_a_formula_to_a_spreadsheet(
    tmp_path, chromium_without_webgl, visit
):
    formula = "=cmd|' /C calc'!A0"
    odd = 'a,b;"c"|d\\e$f\ng\x1bh\u2028'
    path = write(tmp_path, *sample.scan((formula, odd), blocks=2, width=8, tokens=60))
    with visit(chromium_without_webgl, path) as opened:
        with opened.page.expect_download() as download:
            opened.page.locator("[data-take='tables.csv']").click()
        with Path(download.value.path()).open(encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file))
    assert {len(row) for row in rows} == {6}
    assert any('a,b;"c"|d\\e$f' in cell for row in rows for cell in row)
    assert not any(letter in cell for row in rows for cell in row for letter in "\x1b\u2028")
    assert any(cell.startswith(f"'{formula}") for row in rows for cell in row)
    assert not any(cell.startswith(("=", "+", "@")) for row in rows for cell in row)
    # and numbers stay numbers
    assert any(float(row[4]) < 0 for row in rows if re.fullmatch(r"-[\d.]+", row[4]))


def test_a_value_of_the_legend_is_singled_out_by_the_keyboard(
    tmp_path, chromium_without_webgl, visit
):
    document, arrays = sample.scan(("tiny-gpt",), blocks=2, width=16, tokens=90)
    values = [hostile.STRINGS[number % 12] for number in range(90)]
    picture = document["pictures"]["tiny-gpt"]
    picture["colour"] = Colouring(hostile.STRINGS[0], "category", values)
    path = write(tmp_path, document, arrays)
    colours = "[...new Set(document.querySelector('.scene').data[0].marker.color)].length"
    symbols = "[...new Set(document.querySelector('.scene').data[0].marker.symbol)].sort().join()"
    with visit(chromium_without_webgl, path) as opened:
        page = opened.page
        assert page.locator("#colour").input_value() == "column"
        assert page.evaluate(colours) == 6  # five colours, and grey for the other values
        assert page.evaluate(symbols) == "circle,diamond"
        keys = page.locator(".column-legend button")
        assert keys.count() == 11
        keys.nth(1).focus()
        page.keyboard.press("Enter")
        page.wait_for_function(f"{colours} === 2")
        assert keys.nth(1).get_attribute("aria-pressed") == "true"
        page.keyboard.press("Tab")
        page.keyboard.press("Space")
        page.wait_for_function(f"{colours} === 3")
        page.keyboard.press("Enter")
        page.wait_for_function(f"{colours} === 2")
        page.locator("#colour").select_option("position")
        page.wait_for_function("document.querySelector('.column-legend').hidden")
        assert page.locator(".scale").is_visible()
        assert page.evaluate("location.hash").endswith("colour=position")
        opened.clean()
