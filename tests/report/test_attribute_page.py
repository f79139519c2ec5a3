"""The page of an attribution in a browser, with hostile tokens, thousands of them, and many
predictions.
"""

import numpy as np
import pytest

from headscan.attribution import AttributeResult
from headscan.text.spelling import visible

HOSTILE = [
    "<s>",
    visible(" The"),
    "<script>window.pwned=1;alert(1)</script>",
    "</script>",
    "'\"`",
    visible("\n"),
    "<b>bold</b>",
    "שלום",
    visible(" עולם"),
    visible("\u0301"),
    "e\u0301",
    visible("\u202e"),
    "&amp;",
    "{{7*7}}",
    "%{x}",
    visible("\t"),
    "<img src=x onerror=alert(1)>",
]


def document(tokens, steps=1, methods=("occlusion", "gradient-x-input")):
    random = np.random.default_rng(0)
    arrays = {
        f"scores/{m}": random.normal(size=(steps, len(tokens))).astype(np.float32) for m in methods
    }
    arrays |= {f"units/{m}": arrays[f"scores/{m}"] for m in methods}
    curve = {"share": [0.0, 0.5, 1.0], "probability": [0.9, 0.4, 0.1], "area": 0.45}
    random_order = dict.fromkeys(("deletion", "insertion"), 0.5)
    trust = {
        "deletion": curve,
        "insertion": curve,
        "random": random_order,
        "substitute": "eos",
        "steps": 1,
    }
    mean = arrays[f"scores/{methods[0]}"].mean(0)
    result_document = {
        "prompt": "".join(tokens),
        "tokens": list(tokens),
        "ids": list(range(len(tokens))),
        "special": [t == "<s>" for t in tokens],
        "roles": [None] * len(tokens),
        "spans": [
            {"text": t, "tokens": [k], "score": float(mean[k])} for k, t in enumerate(tokens)
        ],
        "scores": mean.tolist(),
        "method": methods[0],
        "signed": True,
        "units": "token",
        "substitute": "eos",
        "cost": {"shared_prefix": True, "tokens_computed": 9},
        "target": {"kind": "logit", "sentence": "the logit of the token", "tokens": [], "ids": []},
        "steps": [
            {
                "position": len(tokens) - 1 - k,
                "id": 1,
                "token": tokens[2],
                "against": None,
                "value": 1.5,
                "probability": 0.9,
                "predictions": [{"id": 1, "token": tokens[2], "probability": 0.9}],
                "scores": [],
            }
            for k in range(steps)
        ],
        "maps": [
            {
                "method": m,
                "parameters": {},
                "words": dict.fromkeys(("title", "sentence", "formula", "cost", "source"), m),
                "seconds": 0.1,
                "faithfulness": trust,
                "completeness": None,
            }
            for m in methods
        ],
        "faithfulness": trust,
        "protocol": {
            "verb": "attribute",
            "command": "headscan attribute <b>m</b>",
            "versions": {"headscan": "0.1.0"},
        },
        "models": [{"name": "<script>window.pwned=1</script>"}],
    }
    return AttributeResult.of_document(result_document, arrays)


@pytest.mark.browser
def test_hostile_tokens_are_shown_as_they_are(tmp_path, chromium_without_webgl, visit):
    result = document(HOSTILE)
    arrays = result.arrays
    path = tmp_path / "report.html"
    path.write_text(result.page(), encoding="utf-8")
    with visit(chromium_without_webgl, path) as opened:
        page = opened.page
        assert page.locator("#tokens .t").all_text_contents() == HOSTILE
        assert page.locator("#tokens script, #tokens b, #tokens img").count() == 0
        assert page.locator("h1 bdi").text_content() == f"Why {HOSTILE[2]}?"
        scores = arrays["scores/occlusion"][0]
        for index in (2, 5, 16):
            page.locator("#tokens .t").nth(index).hover()
            tip = page.locator(".tip").text_content()
            assert tip.startswith(HOSTILE[index])
            assert f"token {index}, id {index}" in tip
            assert ("+" if scores[index] > 0 else "−") + f"{abs(scores[index]):.3g}" in tip
        assert page.locator(".tip script, .tip img, .tip b").count() == 0
        kinds = page.evaluate(
            "[...document.querySelectorAll('#tokens .t')].map((t) => t.classList.contains('for'))"
        )
        assert kinds == [bool(score > 0) for score in scores]
        lines = page.evaluate(
            "[...document.querySelectorAll('#tokens .t')].map((t) => "
            "getComputedStyle(t).borderBottomStyle)"
        )
        assert lines == ["solid" if score > 0 else "dashed" for score in scores]
        page.locator("#method").select_option("1")
        kinds = page.evaluate(
            "[...document.querySelectorAll('#tokens .t')].map((t) => t.classList.contains('for'))"
        )
        assert kinds == [bool(score > 0) for score in arrays["scores/gradient-x-input"][0]]
        page.locator("#tokens").focus()
        page.keyboard.press("End")
        assert f"token {len(HOSTILE) - 1}," in page.locator("#readout").text_content()
        page.keyboard.press("ArrowLeft")
        assert f"token {len(HOSTILE) - 2}," in page.locator("#readout").text_content()
        page.set_viewport_size({"width": 380, "height": 800})
        page.wait_for_function("document.documentElement.scrollWidth <= 380")
        opened.clean()


@pytest.mark.browser
def test_thousands_of_tokens_and_many_predictions(tmp_path, chromium_without_webgl, visit):
    result = document(
        [visible(f" w{k}") for k in range(5000)], steps=4, methods=("occlusion", "combined")
    )
    arrays = result.arrays
    path = tmp_path / "report.html"
    path.write_text(result.page(), encoding="utf-8")
    with visit(chromium_without_webgl, path) as opened:
        page = opened.page
        assert page.locator("#tokens .t").count() == 5000
        page.locator("button.step").nth(3).click()
        kinds = page.evaluate(
            "[...document.querySelectorAll('#tokens .t')].map((t) => t.classList.contains('for'))"
        )
        assert kinds == [bool(score > 0) for score in arrays["scores/occlusion"][2]]
        assert page.locator("#tokens .t.read").get_attribute("data-i") == "4997"
        opened.clean()


def test_the_snippet_and_the_terminal_hold_every_token_and_no_markup():
    result = document(HOSTILE)
    snippet = result._repr_html_()
    assert "<script" not in snippet
    assert "<img" not in snippet
    assert snippet.count("title=") == len(HOSTILE)
    from rich.console import Console

    console = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(result.table())
    text = console.export_text()
    assert "<script>window.pwned=1;alert(1)</script>" in text
    assert "\u202e" not in text
