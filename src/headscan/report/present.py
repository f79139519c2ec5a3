"""What the façade installs so that results show themselves: `result.page()`, `.plot()`, `.table()`, and in a notebook.

Light to import: the kit and what it draws with are imported when the first result is shown.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from headscan.run.errors import BadInput

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from rich.console import RenderableType

    from headscan.run.result import Result

__all__ = ["Report"]


class Report:
    """Shows any result by the page and the sections that are registered for its kind (a `headscan.run.result.Presenter`)."""

    def page(self, result: Result) -> str:
        """The result as one self-contained HTML page of about 2 MB."""
        from headscan.report.kit.html import html
        from headscan.report.kit.register import assemble

        older = _older(result, "page")
        return older(_as_before(result), result.arrays) if older else html(assemble(result))

    def table(self, result: Result) -> RenderableType:
        """The result for the terminal, with characters that the terminal can show."""
        from headscan.report.kit.register import assemble
        from headscan.report.kit.terminal import terminal

        older = _older(result, "table")
        return older(_as_before(result)) if older else terminal(assemble(result))

    def snippet(self, result: Result) -> str:
        """The result for a notebook, as HTML without scripts: findings, one picture, a small table."""
        from headscan.report.kit.notebook import notebook
        from headscan.report.kit.register import assemble

        return result.frame().to_html() if _older(result, "page") else notebook(assemble(result))

    def plot(self, result: Result, what: str | None = None, **options: Any) -> go.Figure:
        """The figure of this name, or the page's first; BadInput with the names that there are."""
        from headscan.report.kit.parts import figures_of
        from headscan.report.kit.register import assemble

        older = _older(result, "plot")
        if older:
            return older(_as_before(result), result.arrays, *([] if what is None else [what]), **options)
        page = assemble(result)
        figures = {figure.name: figure.draw for part in page.parts() for figure in figures_of(part)}
        figures = dict(page.head.plots) | figures
        if not figures:
            raise BadInput(f"A result of the verb '{result.kind}' has no figure.")
        name = next(iter(figures)) if what is None else what
        if name not in figures:
            raise BadInput(f"There is no figure {name!r}; there are: {', '.join(figures)}.")
        draw = figures[name]
        known = list(inspect.signature(draw).parameters) if callable(draw) else []
        for option in options:
            if option not in known:
                raise BadInput(f"The figure {name!r} has no option {option!r}; it has: {', '.join(known) or 'none'}.")
        return draw(**options) if callable(draw) else draw


def _older(result: Result, what: str) -> Any:
    """The function of a page that has not moved to the kit; None where it has. It goes with the last of them."""
    from headscan import report
    from headscan.report.kit.register import PAGES

    return None if result.kind in PAGES else getattr(report, f"{result.kind}_{what}", None)


def _as_before(result: Result) -> dict[str, Any]:
    """The document with the settings in the protocol, as those pages read it."""
    protocol = result.document["protocol"]
    return result.document | {"protocol": protocol["settings"] | {k: v for k, v in protocol.items() if k != "settings"}}
