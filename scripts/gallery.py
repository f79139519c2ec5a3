"""The pictures of docs/gallery.md: chosen figures of a saved result, as SVG.

    headscan scan gpt-vanilla-early --text TEXT --measures anatomy,common_direction --max-tokens
    8192 --out DIR python scripts/gallery.py DIR FIGURE [FIGURE ...]

FIGURE is a figure's name on the page (`anatomy-0`). Needs `headscan[figures]`; `headscan figures`
writes all of a page.
"""

from __future__ import annotations

import sys
from pathlib import Path

import headscan

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "images" / "gallery"


def main(saved: str, names: list[str]) -> None:
    """Write them."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    result = headscan.load(saved)
    for name in names:
        figure = result.plot(name)
        figure.update_layout(width=640, paper_bgcolor="white", plot_bgcolor="white")
        figure.write_image(FOLDER / f"{result.kind}-{name}.svg")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
