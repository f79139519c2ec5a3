"""Print a Markdown table of records, or what a benchmark lacks."""

from __future__ import annotations

import sys
from typing import Any, NoReturn

__all__ = ["needs", "show"]


def needs(requirement: str) -> NoReturn:
    """End a script that cannot measure anything; the series leaves it out."""
    print(f"this benchmark needs {requirement}", file=sys.stderr)
    sys.exit(2)


def show(records: list[dict[str, Any]]) -> None:
    """Print one row a record; the first record's keys are the columns."""
    names = list(records[0])
    print("| " + " | ".join(name.replace("_", " ") for name in names) + " |")
    print("|---" * len(names) + "|")
    for record in records:
        print("| " + " | ".join(_word(record[name]) for name in names) + " |", flush=True)


def _word(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, float):
        return (
            f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
        )
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
