from dataclasses import replace

import pytest

from headscan.ntp.support_metrics import SubspaceCollapse
from tests.ntp.test_run import tiny


@pytest.fixture(scope="module")
def saved():
    import headscan

    text = [
        "the cat sat. the cat ran. the dog ran. the dog sat. " * 3,
        "</script><b>a</b> & a dog sat. " * 3,
    ]
    models = [tiny(300, seed, f"<i>seed {seed}") for seed in (0, 1)]
    return headscan.ntp.run(text, order=2, tokenizer="bytes", model=models, groups=0)


@pytest.mark.browser
def test_all_figures_are_drawn(chromium_without_webgl, saved, visit, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(saved.page(), encoding="utf-8")
    with visit(chromium_without_webgl, path) as opened:
        # also what was never in view
        assert opened.page.locator("[data-figure]:not(:has(.main-svg))").count() == 0
        assert opened.page.locator("[data-figure]").count() >= 5
        opened.clean()


def test_contexts_that_share_no_support_leave_the_collapse_out_in_words(saved):
    assert "with different supports" in saved.page()
    bare = [
        replace(model, metrics=replace(model.metrics, SC1=SubspaceCollapse(None, None)))
        for model in saved.comparisons
    ]
    page = replace(saved, comparisons=bare).page()
    assert "with different supports" not in page
    assert "no two of the contexts compared are followed by the same set of tokens" in page
