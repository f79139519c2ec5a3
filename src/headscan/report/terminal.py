"""Until every page is in `headscan.report.pages`: what the old ones share."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from headscan.report.kit import protocol
from headscan.report.kit.terminal import _finding
from headscan.report.kit.words import clean

__all__ = ["clean", "finding"]


def finding(item: dict[str, Any], named: bool) -> Text:
    """A finding as a line."""
    return _finding(protocol.findings({"findings": [item], "models": [{}, {}] if named else []})[0])
