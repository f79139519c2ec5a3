"""Write docs/measures.md from the measures themselves: formula, range, cost and source stand in one place only.

python scripts/measures.py [--check]
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

from headscan.geometry import MEASURES

PAGE = Path(__file__).resolve().parents[1] / "docs" / "measures.md"


def page() -> str:
    """The whole page as Markdown."""
    parts = ["# Measures\n\nWritten by `scripts/measures.py` from the code; a test fails when it is out of date.\n"]
    for group in dict.fromkeys(measure.group for measure in MEASURES.values()):
        parts.append(f"## {group.capitalize()}\n")
        for name, measure in MEASURES.items():
            if measure.group != group:
                continue
            low, high = (
                ("−∞" if measure.range[0] is None else f"{measure.range[0]:g}"),
                ("∞" if measure.range[1] is None else f"{measure.range[1]:g}"),
            )
            unit = f" {measure.unit}" if measure.unit else ""
            details = inspect.cleandoc(measure.function.__doc__ or "").split(">>>")[0].strip()
            parts.append(
                f"### `{name}`: {measure.title}\n\n{measure.sentence}\n\n    {measure.formula}\n\n{details}\n\n"
                f"Range {low} to {high}{unit}. Cost {measure.cost}. Undefined for {measure.undefined}. "
                f"Source: {measure.source}.\n"
            )
    return "\n".join(parts)


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(0 if PAGE.read_text() == page() else f"{PAGE.name} is out of date: run python scripts/measures.py")
    PAGE.write_text(page())
