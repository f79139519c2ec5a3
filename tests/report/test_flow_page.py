"""The page of a flow in a browser."""

import numpy as np
import pytest

from headscan.flow import FlowResult

TOKENS = ["<s>", "␣a", "</script><script>window.pwned=1</script>", "⏎", "שלום"]


def document():
    random = np.random.default_rng(0)
    arrays = {
        f"{kind}/{k}": np.triu(random.random((3, 5, 5))).astype(np.float32)
        for kind in ("leak", "margin")
        for k in (0, 1)
    }
    arrays |= {f"recoverable/{k}": (arrays[f"margin/{k}"] > 0).astype(np.float32) for k in (0, 1)}
    entry = {
        "leak_own": 1.0,
        "leak_of_earlier": 0.3,
        "leak_of_later": 0.0,
        "recoverable_of_earlier": 1.0,
    }
    parts = [
        {
            "model": "<b>m</b>",
            "cut": cut,
            "slice": "block.2",
            "tokens": TOKENS,
            "noise": None,
            "candidates": 5,
            "exhaustive": True,
            "sites": [{"site": f"block.{k}", **entry} for k in range(3)],
        }
        for cut in ("whole", "fresh")
    ]
    means = {"own": 1.0, "of_earlier": 0.3, "of_later": 0.0}
    result_document = {
        "tokens": TOKENS,
        "site": "block.2",
        "sites": ["block.0", "block.1", "block.2"],
        "parts": parts,
        "leak": means,
        "recoverable": means,
        "prompts": 1,
        "length": 5,
        "models": [{"name": "<b>m</b>"}],
        "protocol": {"verb": "flow", "command": "headscan flow"},
    }
    return FlowResult.of_document(result_document, arrays)


@pytest.mark.browser
def test_the_slider_turns_all_matrices_and_cells_are_told(tmp_path, chromium_without_webgl, visit):
    result = document()
    arrays = result.arrays
    path = tmp_path / "report.html"
    path.write_text(result.page(), encoding="utf-8")
    with visit(chromium_without_webgl, path) as opened:
        page = opened.page
        assert page.locator("#matrices canvas").count() == 2
        assert page.locator("#layer-name").text_content() == "block.2"
        picture_before = page.locator("#matrices canvas").first.screenshot()
        page.locator("#layer").focus()
        page.keyboard.press("Home")
        assert page.locator("#layer-name").text_content() == "block.0"
        assert page.locator("#matrices canvas").first.screenshot() != picture_before
        canvas = page.locator("#matrices canvas").first
        canvas.focus()
        for key in ("ArrowDown", "ArrowRight", "ArrowRight"):
            page.keyboard.press(key)
        readout = page.locator("#readout").text_content()
        assert readout.startswith(f"Token 1 ␣a in output 2 {TOKENS[2]}")
        assert f"leak {arrays['leak/0'][0, 1, 2]:.3g}"[:8] in readout
        page.locator("#kind").select_option("recoverable")
        assert "recoverable" in page.locator("#matrices figcaption").first.text_content()
        page.set_viewport_size({"width": 380, "height": 800})
        page.wait_for_function("document.documentElement.scrollWidth <= 380")
        opened.clean()


def test_the_table_takes_names_literally():
    from rich.console import Console

    console = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(document().table())
    assert "<b>m</b>" in console.export_text()
