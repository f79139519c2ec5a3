"""The functions that show a result of any kind, by the page and sections registered for it.

`headscan.run.result.Result` calls them as its `presenter`: `result.page()`, `.plot()`, `.table()`,
and in a notebook. This module is light to import: the kit and what it draws with are imported when
the first result is shown.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headscan.run.errors import BadInput

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from rich.console import RenderableType

    from headscan.report.kit.parts import Page, Table
    from headscan.run.result import Result


def page(result: Result) -> str:
    """Return the result as one self-contained HTML page of about 2 MB."""
    from headscan.report.kit.html import html

    return html(_assembled(result))


def table(result: Result, *, whole: bool = False) -> RenderableType:
    """Return the result for the terminal, with characters that the terminal can show.

    `whole` adds all the page's tables.
    """
    from headscan.report.kit.terminal import terminal

    return terminal(_assembled(result), whole=whole)


def figures(result: Result, folder: Path, formats: Sequence[str]) -> list[Path]:
    """Write the page's figures in these formats into a folder and return the paths."""
    from headscan.report.kit.paper import write_figures

    return write_figures(_assembled(result), folder, formats)


def latex(result: Result, name: str | None = None) -> str:
    """Return the table of this title for a paper, or the first that is not folded.

    Raises BadInput where there is none, or none of this title.
    """
    from headscan.report.kit.paper import latex as latex_table

    tables = _tables(_assembled(result))
    if not tables:
        raise BadInput(f"A result of the verb '{result.kind}' has no table.")
    if name is None:
        unfolded = [title for title, table in tables.items() if not table.folded]
        name = next(iter(unfolded or tables))
    if name not in tables:
        raise BadInput(f"There is no table {name!r}; there are: {', '.join(tables)}.")
    return latex_table(tables[name])


def _tables(page: Page) -> dict[str, Table]:
    """Map titles to tables; one without a title has that of its section."""
    from headscan.report.kit.parts import Raw, Section, Table

    tables: dict[str, Table] = {}
    for section in (Section("", parts=page.head.top), *page.sections):
        for part in section.parts:
            table = part.table if isinstance(part, Raw) else part
            if isinstance(table, Table) and table.lines:
                title = table.title or section.title
                tables[title if title not in tables else f"{section.title}: {title}"] = table
    return tables


def snippet(result: Result) -> str:
    """Return the result for a notebook, as HTML without scripts: findings and a small table."""
    from headscan.report.kit.notebook import notebook

    return notebook(_assembled(result))


def plot(result: Result, name: str | None = None, **options: Any) -> go.Figure:
    """Return the figure of this name, or the page's first.

    Raises BadInput, with the names or options that there are, for an unknown one.
    """
    draw_by_name = _drawings(_assembled(result))
    if not draw_by_name:
        raise BadInput(f"A result of the verb '{result.kind}' has no figure.")
    if name is None:
        name = next(iter(draw_by_name))
    if name not in draw_by_name:
        raise BadInput(f"There is no figure {name!r}; there are: {', '.join(draw_by_name)}.")
    draw = draw_by_name[name]
    known_options = list(inspect.signature(draw).parameters) if callable(draw) else []
    for option in options:
        if option not in known_options:
            listed = ", ".join(known_options) or "none"
            raise BadInput(f"The figure {name!r} has no option {option!r}; it has: {listed}.")
    return draw(**options) if callable(draw) else draw


def _drawings(page: Page) -> dict[str, go.Figure | Callable[..., go.Figure]]:
    """Map each name of a figure to the figure, or to the function that draws it."""
    from headscan.report.kit.parts import figures_of

    drawings: dict[str, go.Figure | Callable[..., go.Figure]] = dict(page.head.plots)
    for part in page.parts():
        for figure in figures_of(part):
            drawings[figure.name] = figure.draw
    return drawings


def _assembled(result: Result) -> Page:
    """Return the page of a result, as a value."""
    from headscan.report.kit.register import assemble

    return assemble(result)
