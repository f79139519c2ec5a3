"""Attribution and flow pages of a real model on prompts that pages go wrong on, opened in a
browser.
"""

import pytest

import headscan
from tests.attribution.hard_prompts import CHAT_TEMPLATE, PROMPTS

pytestmark = [pytest.mark.browser, pytest.mark.assets]


@pytest.fixture(scope="module")
def stories(assets):
    lens = headscan.Lens.load(str(assets / "models" / "stories260K"))
    lens.tokenizer.chat_template = CHAT_TEMPLATE
    return lens


@pytest.mark.parametrize(
    "names", ["wipers", "chat", "script|special|quotes|right-to-left", "5,000 tokens"]
)
def test_a_page_shows_every_token_and_runs_none(
    names, stories, tmp_path, chromium_without_webgl, visit
):
    prompts, (options, *_) = zip(*(PROMPTS[name] for name in names.split("|")), strict=True)
    prompt = prompts[0]
    if len(prompts) > 1:
        prompt = " ".join(prompts)
        options = {"method": "gradient-x-input", "faithfulness": False}  # of the others' pages
    if "5,000" in names:  # a fifth of them: `test_attribute_page` has a page of them all
        prompt = prompt[: len(prompt) // 5]
    stories.context_length = 2048  # rotary angles are defined at any position
    result = headscan.attribute(stories, prompt, out=tmp_path, **options)
    with visit(
        chromium_without_webgl, tmp_path / "report.html", viewport={"width": 400, "height": 800}
    ) as opened:
        page = opened.page
        assert page.locator("#tokens .t").all_text_contents() == result.tokens
        assert page.locator("#tokens script, #tokens img, #tokens b").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= 400
        page.locator("#tokens").focus()
        page.keyboard.press("Home")
        page.keyboard.press("ArrowRight")
        assert f"token 1, id {result.ids[1]}: " in page.locator("#readout").text_content()
        opened.clean()


def test_the_flow_page_turns_through_the_layers(stories, tmp_path, chromium_without_webgl, visit):
    headscan.flow.run(
        stories, PROMPTS["script"][0], length=6, candidates=40, null=True, out=tmp_path
    )
    with visit(
        chromium_without_webgl, tmp_path / "report.html", viewport={"width": 400, "height": 800}
    ) as opened:
        page = opened.page
        assert page.locator("#matrices canvas").count() == 2
        names = []
        page.locator("#layer").focus()
        page.keyboard.press("Home")
        for _ in range(5):
            names.append(page.locator("#layer-name").text_content())
            page.keyboard.press("ArrowRight")
        assert names == [f"block.{k}" for k in range(5)]
        assert page.evaluate("document.documentElement.scrollWidth") <= 400
        opened.clean()


def test_the_channel_page_has_its_figures(stories, tmp_path, chromium_without_webgl, visit):
    headscan.flow.channel(stories, PROMPTS["script"][0], length=3, null=True, out=tmp_path)
    with visit(
        chromium_without_webgl, tmp_path / "report.html", viewport={"width": 400, "height": 800}
    ) as opened:
        page = opened.page
        assert page.evaluate("document.documentElement.scrollWidth") <= 400
        assert page.locator("[data-figure=noise-1], [data-figure=noise-0]").count() == 2
        opened.clean()
