"""What the claims on inversion say, which experiment and rule decides each, and the command that runs the original.

They are data: the rows of `inversion.tsv` beside this file, with the columns of `Entry`; arguments are a JSON list.
"""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from importlib import resources
from typing import Any

__all__ = ["STATEMENTS", "Entry"]


@dataclass(frozen=True)
class Entry:
    """One claim: its number, what is said, the experiment, the rule with its arguments, the original's command."""

    number: int
    statement: str
    experiment: str
    rule: str
    arguments: tuple[Any, ...]
    command: str


def _read() -> tuple[Entry, ...]:
    text = (resources.files("headscan.claims") / "inversion.tsv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE)
    return tuple(
        Entry(
            int(row["number"]),
            row["statement"],
            row["experiment"],
            row["rule"],
            tuple(json.loads(row["arguments"])),
            row["command"],
        )
        for row in rows
    )


STATEMENTS = _read()
