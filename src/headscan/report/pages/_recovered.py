"""Tokens that were found again, right ones plain and wrong ones struck: what the pages of inversions share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from headscan.report.kit import Raw
from headscan.report.kit.words import clean

__all__ = ["LEAST", "RecoveredLine", "RecoveredToken", "recovered"]

# An output that is equal to the last bit has no logarithm; it is drawn at the least that float32 resolves.
LEAST = 1e-9


@dataclass(frozen=True)
class RecoveredToken:
    """A token as it was found; `true` is shown behind a wrong one, `title` on pointing at it."""

    found: str
    right: bool
    true: str = ""
    title: str = ""


@dataclass(frozen=True)
class RecoveredLine:
    """A line of tokens, with what is said of it."""

    tokens: Sequence[RecoveredToken]
    verdict: str = ""
    said: str = ""


def recovered(lines: Sequence[RecoveredLine]) -> Raw:
    """The lines on the page, and the first of them in the terminal."""
    shown = Text()
    for line in lines[:20]:
        for token in line.tokens[:300]:
            shown.append(clean(token.found), style="green" if token.right else "bold red")
            shown.append(" ")
        shown.append("\n")
    return Raw("recovered.html.j2", context={"lines": lines}, styles=("invert.css",), terminal=shown)
