"""Write docs/measures.md from the measures themselves: formula, range, cost and source stand in one
place only.

python scripts/measures.py [--check]
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

from headscan.measures import Measure
from headscan.scanner.selection import ordered_measures

PAGE = Path(__file__).resolve().parents[1] / "docs" / "measures.md"


def span(measure: Measure) -> str:
    """The range of a measure with its unit."""
    description = measure.words
    low, high = (
        end if bound is None else f"{bound:g}"
        for bound, end in zip(description.range, ("−∞", "∞"), strict=True)
    )
    return f"{low} to {high}" + (f" {description.unit}" if description.unit else "")


def entry(measure: Measure) -> str:
    """Return the description of a measure, under a heading of the third level."""
    description = measure.words
    details = inspect.cleandoc(measure.function.__doc__ or "").split(">>>")[0].strip()
    return (
        f"### `{measure.name}`: {description.title}\n\n{description.sentence}\n\n    "
        f"{description.formula}\n\n{details}\n\n"
        f"Range {span(measure)}. Cost {description.cost}. Undefined for {description.undefined}. "
        f"Source: {description.source}.\n"
    )


def page(own: bool = True) -> str:
    """The whole page as Markdown.

    `own`: leave out the measures of plug-ins, which are described where the plug-in is.
    """
    parts = [
        "# Measures\n\nWritten by `scripts/measures.py` from the code; a test fails when it is "
        "out of date.\n"
    ]
    measures = [
        measure
        for measure in ordered_measures()
        if not own or measure.function.__module__.startswith("headscan.")
    ]
    for group in dict.fromkeys(measure.words.group for measure in measures):
        parts.append(f"## {group.capitalize()}\n")
        parts += [entry(measure) for measure in measures if measure.words.group == group]
    return "\n".join(parts)


if __name__ == "__main__":
    if "--print" in sys.argv:
        print(page(own=False))
    elif "--check" in sys.argv:
        sys.exit(
            0
            if PAGE.read_text() == page()
            else f"{PAGE.name} is out of date: run python scripts/measures.py"
        )
    else:
        PAGE.write_text(page())
