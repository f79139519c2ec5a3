"""Attribution and flow pages of real models on prompts that pages go wrong on, with pictures to look at.

    python scripts/pages.py FOLDER [--assets ../shared/assets] [--only "NAME;NAME"]

Writes FOLDER/NAME/report.html for each prompt of tests/attribution/hard_prompts.py on stories260K (one on the masked
specimen), flow pages, and, where Chromium and playwright are installed, pictures 1200 and 400 pixels wide, light and dark.
Says of each page whether a script ran that should not, or an error was logged.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

import headscan
from tests.attribution.hard_prompts import CHAT_TEMPLATE, PROMPTS

VIEWS = [(1200, "light"), (1200, "dark"), (400, "light"), (400, "dark")]
FLAGS = ["--no-sandbox", "--disable-gpu", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader",
         "--disable-background-networking"]  # fmt: skip


def build(folder: Path, assets: Path, wanted: set[str]) -> list[Path]:
    """Make the pages; their folders."""
    lens = headscan.Lens.load(str(assets / "models" / "stories260K"))
    lens.tokenizer.chat_template = CHAT_TEMPLATE
    made = []
    for name, (prompt, options) in PROMPTS.items():
        if wanted and name not in wanted:
            continue
        lens.context_length = 8192 if "5,000" in name else 512  # rotary angles are defined at any position
        headscan.attribute(lens, prompt, out=folder / name, **options)
        made.append(folder / name)
    flows = {
        "flow": ([lens], {"null": True, "channel": True, "cuts": "whole,attention", "searches": "exact,adam"}),
        "flow-specimens": (["gpt-vanilla", "gpt-headless"], {"recover": False}),
    }
    for name, (models, options) in flows.items():
        if wanted and name not in wanted:
            continue
        headscan.flow.run(models, "The wipers on the bus go swish swish <b>", out=folder / name, **options)
        made.append(folder / name)
    return made


def picture(folders: list[Path], views: list[tuple[int, str]]) -> None:
    """Open each page and take its picture; a line for each that did what it should not."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS)
        for folder in folders:
            for width, scheme in views:
                page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
                faults: list[str] = []
                page.on("console", lambda m, faults=faults: faults.append(m.text) if m.type == "error" else None)
                page.on("pageerror", lambda e, faults=faults: faults.append(str(e)))
                page.on("dialog", lambda d, faults=faults: (faults.append(d.message), d.dismiss()))
                page.goto((folder / "report.html").resolve().as_uri())
                page.wait_for_selector("html[data-ready=true]", timeout=60_000)
                wide = page.evaluate("document.documentElement.scrollWidth")
                page.screenshot(path=folder / f"{width}-{scheme}.png", full_page=True)
                ran = page.evaluate("window.pwned")
                if faults or ran or wide > width:
                    print(f"{folder.name}, {width} {scheme}: {faults}, ran {ran}, {wide} pixels wide")
                page.close()
        browser.close()


def main() -> None:
    """Build, and take pictures."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("folder", type=Path)
    asked.add_argument("--assets", type=Path, default=Path("../shared/assets"))
    asked.add_argument("--only", default="")
    asked.add_argument("--pictures-only", action="store_true")
    options = asked.parse_args()
    torch.set_num_threads(1)
    wanted = {name for name in options.only.split(";") if name}
    if options.pictures_only:
        folders = sorted(path.parent for path in options.folder.glob("*/report.html"))
    else:
        folders = build(options.folder, options.assets, wanted)
    few = ("wipers", "script", "right-to-left", "continuation", "flow", "chat")
    for folder in folders:
        picture([folder], VIEWS if folder.name in few or wanted else VIEWS[:1])


if __name__ == "__main__":
    main()
