r"""Make the pictures of docs/README.md from a scan's report.

    headscan scan qwen --text wikitext-2/test.txt --max-tokens 2048 --out DIR \
        --sites 'embedding,block.0,block.2,block.13,block.20,block.27,final_norm'
    python docs/images/photograph.py DIR/report.html

Needs playwright and Debian's chromium; software rendering draws the 3-D picture where there is no
graphics card.
"""

from __future__ import annotations

import sys
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

HERE = Path(__file__).parent
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--use-gl=angle",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
]


def settle(page: Page) -> None:
    """Waits until every figure is drawn."""
    page.wait_for_selector("html[data-ready=true]")
    page.wait_for_function(
        "[...document.querySelectorAll('.scene')].every((s) => s.querySelector('.main-svg'))"
    )
    page.wait_for_timeout(1500)


def main(report: str) -> None:
    """Write cat-scan.png, the 3-D picture, in light and dark."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS)
        for scheme, suffix in (("light", ""), ("dark", "-dark")):
            page = browser.new_page(
                viewport={"width": 1200, "height": 860}, color_scheme=scheme, bypass_csp=True
            )
            page.goto(Path(report).resolve().as_uri())
            settle(page)
            page.add_style_tag(
                content=".switch { position: static !important } #scan { padding: 28px !important }"
            )
            page.locator("#scan").screenshot(path=HERE / f"cat-scan{suffix}.png")
            page.close()
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1])
