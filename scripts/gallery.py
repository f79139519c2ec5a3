"""Write the pictures of docs/gallery.md and docs/five-pictures.md: figures of results, as SVG.

    python scripts/gallery.py DIR FIGURE[=NAME] ...     figures of a saved result
    python scripts/gallery.py --five                   three of the five pictures, run anew

FIGURE is a figure's name on the page (`anatomy-0`). Needs `headscan[figures]`; `headscan figures`
writes all of a page.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import headscan

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "images" / "gallery"
FIVE: dict[str, tuple[str, Callable[[], headscan.Result]]] = {
    "five-cone": (
        "average_cosine",
        lambda: headscan.scan(
            ["gpt-vanilla", "gpt-vanilla-early"], "stories", max_tokens=4096, null=True
        ),
    ),
    "scan-anatomy-0": (
        "anatomy-0",
        lambda: headscan.scan("gpt-vanilla-early", "stories", max_tokens=4096, measures="anatomy"),
    ),
    "compare-cka": (
        "cka",
        lambda: headscan.compare(["gpt-vanilla", "gpt-headless"], "stories", max_tokens=8192),
    ),
}


def draw(result: headscan.Result, figure_name: str, file_name: str) -> None:
    """Write one figure of a result."""
    figure = result.plot(figure_name)
    figure.update_layout(width=640, paper_bgcolor="white", plot_bgcolor="white")
    figure.write_image(FOLDER / f"{file_name}.svg")


def main(arguments: list[str]) -> None:
    """Write the figures that are asked for."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    if arguments[0] == "--five":
        for file_name, (figure_name, make) in FIVE.items():
            if not arguments[1:] or file_name in arguments[1:]:
                draw(make(), figure_name, file_name)
        return
    result = headscan.load(arguments[0])
    for argument in arguments[1:]:
        figure_name, _, file_name = argument.partition("=")
        draw(result, figure_name, file_name or f"{result.kind}-{figure_name}")


if __name__ == "__main__":
    main(sys.argv[1:])
