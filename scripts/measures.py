"""Write docs/measures.md from the measures themselves: formula, range, cost and source stand in one place only.

python scripts/measures.py [--check]
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

from headscan.geometry import ordered_measures

PAGE = Path(__file__).resolve().parents[1] / "docs" / "measures.md"


def page() -> str:
    """The whole page as Markdown."""
    parts = ["# Measures\n\nWritten by `scripts/measures.py` from the code; a test fails when it is out of date.\n"]
    measures = ordered_measures()
    for group in dict.fromkeys(measure.words.group for measure in measures):
        parts.append(f"## {group.capitalize()}\n")
        for measure in (one for one in measures if one.words.group == group):
            words = measure.words
            low, high = (
                end if bound is None else f"{bound:g}" for bound, end in zip(words.range, ("−∞", "∞"), strict=True)
            )
            unit = f" {words.unit}" if words.unit else ""
            details = inspect.cleandoc(measure.function.__doc__ or "").split(">>>")[0].strip()
            parts.append(
                f"### `{measure.name}`: {words.title}\n\n{words.sentence}\n\n    {words.formula}\n\n{details}\n\n"
                f"Range {low} to {high}{unit}. Cost {words.cost}. Undefined for {words.undefined}. "
                f"Source: {words.source}.\n"
            )
    return "\n".join(parts)


if __name__ == "__main__":
    if "--print" in sys.argv:
        print(page())
    elif "--check" in sys.argv:
        sys.exit(0 if PAGE.read_text() == page() else f"{PAGE.name} is out of date: run python scripts/measures.py")
    else:
        PAGE.write_text(page())
