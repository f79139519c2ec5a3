"""Until every page is in `headscan.report.pages`: what the old ones share."""

from __future__ import annotations

from typing import Any

from headscan.report.kit import protocol
from headscan.report.kit.protocol import flat

__all__ = ["flat", "when"]


def when(document: dict[str, Any]) -> str:
    """The day and time a run started."""
    return protocol.when(document.get("protocol", {}).get("started"))
