"""Reading the lines of a set."""

from __future__ import annotations

from pathlib import Path

from headscan.run import BadInput

__all__ = ["lines"]


def lines(path: str | Path) -> list[str]:
    """The lines of a file that are not empty; BadInput where it cannot be read."""
    try:
        return [line for line in Path(path).read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError):
        raise BadInput(f"{path} cannot be read.") from None
