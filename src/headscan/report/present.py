"""What the façade installs so that results show themselves: `result.page()`, `.plot()`, `.table()`,
and in a notebook.

Light to import: the kit and what it draws with are imported when the first result is shown.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headscan.run.errors import BadInput

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from rich.console import RenderableType

    from headscan.report.kit.parts import Page
    from headscan.run.result import Result


def _page(result: Result) -> Page:
    from headscan.report.kit.register import assemble

    return assemble(result)


class Report:
    """Shows any result by the page and the sections that are registered for its kind (a
    `headscan.run.result.Presenter`).
    """

    def page(self, result: Result) -> str:
        """The result as one self-contained HTML page of about 2 MB."""
        from headscan.report.kit.html import html

        return html(_page(result))

    def table(self, result: Result, *, whole: bool = False) -> RenderableType:
        """The result for the terminal, with characters that the terminal can show; `whole` with all
        the page's tables.
        """
        from headscan.report.kit.terminal import terminal

        return terminal(_page(result), whole=whole)

    def figures(self, result: Result, folder: Path, formats: Sequence[str]) -> list[Path]:
        """The page's figures as files of these formats in a folder."""
        from headscan.report.kit.terminal import write_figures

        return write_figures(_page(result), folder, formats)

    def latex(self, result: Result) -> str:
        """The page's tables for a paper; BadInput where it has none."""
        from headscan.report.kit.parts import Table
        from headscan.report.kit.terminal import latex

        tables = [
            part
            for part in _page(result).parts()
            if isinstance(part, Table) and part.where != "terminal"
        ]
        if not tables:
            raise BadInput(f"A result of the verb '{result.kind}' has no table.")
        return "\n\n".join(map(latex, tables))

    def snippet(self, result: Result) -> str:
        """The result for a notebook, as HTML without scripts: findings and a small table."""
        from headscan.report.kit.html import notebook

        return notebook(_page(result))

    def plot(self, result: Result, what: str | None = None, **options: Any) -> go.Figure:
        """The figure of this name, or the page's first; BadInput with the names that there are."""
        from headscan.report.kit.parts import figures_of

        page = _page(result)
        figures = {figure.name: figure.draw for part in page.parts() for figure in figures_of(part)}
        if not (figures := dict(page.head.plots) | figures):
            raise BadInput(f"A result of the verb '{result.kind}' has no figure.")
        name = next(iter(figures)) if what is None else what
        if name not in figures:
            raise BadInput(f"There is no figure {name!r}; there are: {', '.join(figures)}.")
        draw = figures[name]
        known = list(inspect.signature(draw).parameters) if callable(draw) else []
        for option in options:
            if option not in known:
                raise BadInput(
                    f"The figure {name!r} has no option {option!r}; it has: "
                    f"{', '.join(known) or 'none'}."
                )
        return draw(**options) if callable(draw) else draw
