from dataclasses import replace

import pytest

from headscan.ntp.support_metrics import SubspaceCollapse
from tests.ntp.test_run import tiny


@pytest.fixture(scope="module")
def saved():
    import headscan

    text = ["the cat sat. the cat ran. the dog ran. the dog sat. " * 3, "</script><b>a</b> & a dog sat. " * 3]
    models = [tiny(300, seed, f"<i>seed {seed}") for seed in (0, 1)]
    return headscan.ntp.run(text, order=2, tokenizer="bytes", model=models, groups=0)


@pytest.mark.browser
def test_all_figures_are_drawn(chromium_without_webgl, saved, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(saved.page())
    page = chromium_without_webgl.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    page.on("request", lambda request: faults.append(request.url) if request.url.startswith("http") else None)
    page.goto(path.as_uri())
    # Figures are drawn as they come into view.
    for figure in page.query_selector_all("[data-figure]"):
        figure.scroll_into_view_if_needed()
        page.wait_for_function("f => f.querySelector('.main-svg')", arg=figure, timeout=60_000)
    assert faults == []
    assert page.locator("[data-figure]").count() >= 5
    page.close()


def test_contexts_that_share_no_support_leave_the_collapse_out_in_words(saved):
    assert "with different supports" in saved.page()
    bare = [replace(model, metrics=replace(model.metrics, SC1=SubspaceCollapse(None, None))) for model in saved.comparisons]
    page = replace(saved, comparisons=bare).page()
    assert "with different supports" not in page
    assert "no two of the contexts compared are followed by the same set of tokens" in page
