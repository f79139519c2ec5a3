"""Who shows results: a place that the floor above fills, so that results know nothing of pages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from rich.console import RenderableType


class Presenter(Protocol):
    """What shows results (each a `Result`, which stands on this); the façade installs one with `present_with`."""

    def page(self, result: Any) -> str:
        """The result as one self-contained HTML page."""

    def plot(self, result: Any, what: str | None, **options: Any) -> go.Figure:
        """A picture of the result: the one of this name, or its first."""

    def table(self, result: Any) -> RenderableType:
        """The result for the terminal."""

    def figures(self, result: Any, folder: Path, formats: Sequence[str]) -> list[Path]:
        """The page's figures as files of these formats in a folder."""

    def latex(self, result: Any) -> str:
        """The page's tables for a paper."""

    def snippet(self, result: Any) -> str:
        """The result for a notebook: findings, one picture, a small table, as HTML."""


_installed: Presenter | None = None


def present_with(one: Presenter) -> None:
    """Say who shows results."""
    global _installed
    _installed = one


def presenter() -> Presenter:
    """Who shows results."""
    if _installed is None:
        raise RuntimeError("nothing that shows results was installed: import headscan")
    return _installed
