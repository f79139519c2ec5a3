"""The pages of `headscan invert`: what they say, what they escape, and that their figures are drawn
in a browser.
"""

import pytest
import torch

from headscan.inversion import invert
from headscan.leaks import privacy
from headscan.model import ByteTokenizer
from tests.inversion.conftest import build

HOSTILE = "<b>&$x$"


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    lens = build("gpt2", vocabulary=256, width=32, depth=2)
    lens.tokenizer = ByteTokenizer()
    folder = tmp_path_factory.mktemp("pages")
    invert(lens, [HOSTILE, "abc"], at="block.1", out=folder / "invert")
    invert(lens, torch.tensor([list(b"abcdef")]), at="block.1[:, :3, :]", out=folder / "part")
    privacy(
        lens,
        ["Once upon a time there was a cat. " * 4],
        windows=2,
        length=8,
        noise=(0, 1.6),
        out=folder / "privacy",
    )
    privacy(lens, [HOSTILE, "abcdefg"], release="gradient", out=folder / "gradient")
    return {path.name: path / "report.html" for path in folder.iterdir()}


def test_pages_say_what_they_show(pages):
    text = pages["invert"].read_text()
    # one sentence for both prompts
    assert text.count("Recovered: the tokens shown give the output within") == 1
    assert "&lt;" in text
    assert "<b>&$x$" not in text.split('id="data"')[0]
    assert "Information absent" in pages["part"].read_text()
    privacy_page = pages["privacy"].read_text()
    assert "At noise 1.6 at block." in privacy_page
    assert "100% of the tokens are recovered by exact search (recovered and unique)" in privacy_page
    assert "Certified: a token that is not listed" in pages["gradient"].read_text()


@pytest.mark.browser
@pytest.mark.parametrize("name", ["part", "gradient"])
def test_figures_are_drawn_and_nothing_is_wider_than_the_screen(
    pages, name, chromium_without_webgl, visit
):
    """Opened on a phone, then drawn wide; `test_accessible` does the same with the other kinds."""
    with visit(
        chromium_without_webgl,
        pages[name],
        viewport={"width": 400, "height": 900},
        color_scheme="dark",
    ) as opened:
        for width in (400, 1200):
            opened.page.set_viewport_size({"width": width, "height": 900})
            for scheme in ("dark", "light"):
                opened.page.emulate_media(color_scheme=scheme)
                assert opened.page.locator(".plot .main-svg").count() > 0
                assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
        opened.clean()
