"""The one way work tells how far it has come."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int | None, str], None]
"""Called as work goes on with (stage, done, all or None where that is not known, unit such as "tokens").

What stands behind " · " in the stage's name may change as the stage goes on."""


def no_progress(stage: str, done: int, total: int | None = None, unit: str = "tokens") -> None:
    """Says nothing."""
