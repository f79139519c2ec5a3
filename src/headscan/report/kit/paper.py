"""What goes into a paper: figures as SVG and PDF, tables as LaTeX."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import plotly.graph_objects as go

from headscan.report.kit.parts import Cell, Figure, Table, figures_of
from headscan.report.kit.parts import Page as PageOf
from headscan.report.kit.words import clean, written
from headscan.run.errors import BadInput

__all__ = ["FORMATS", "check_kaleido", "latex", "write_figures"]

FORMATS = ("svg", "pdf")
WIDTH = 640  # pixels; SVG and PDF have no resolution
ESCAPES = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "−": "$-$", "×": r"$\times$", "–": "--", "—": "---",
}  # fmt: skip
SUPERSCRIPTS = dict(zip("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789", strict=True))


def check_kaleido() -> None:
    """BadInput where what writes figures is not installed: said before the work whose figures they are."""
    if find_spec("kaleido") is None:
        raise BadInput("Figures for papers need kaleido: pip install 'headscan[figures]'.")


def write_figures(page: PageOf, folder: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Every figure of a page as NAME.FORMAT, in the light colours; the paths.

    Raises BadInput where kaleido or a Chrome is missing, or a format is none of SVG, PDF, PNG.
    """
    unknown = [one for one in formats if one not in (*FORMATS, "png")]
    if unknown:
        raise BadInput(f"Figures are written as svg, pdf or png, not as {unknown[0]}.")
    figures = {one.name: one for part in page.parts() for one in figures_of(part)}
    if not figures:
        raise BadInput(f"A result of the verb '{page.kind}' has no figure.")
    check_kaleido()
    import plotly.io

    drawn = [_framed(one) for one in figures.values()]
    paths = [folder / f"{name}.{kind}" for name in figures for kind in formats]
    every = [figure for figure in drawn for _ in formats]
    try:
        plotly.io.write_images(every, [str(path) for path in paths])
    except Exception as error:  # whatever keeps the browser from starting
        raise BadInput(
            f"The figures could not be drawn ({str(error).splitlines()[0]}): is Chrome or Chromium installed?"
        ) from None
    return paths


def _framed(figure: Figure) -> go.Figure:
    """The figure on white, of the size that it has on the page, with its title."""
    made = go.Figure(figure.made())
    made.update_layout(width=WIDTH, height=figure.height, paper_bgcolor="white", plot_bgcolor="white")
    return made


def latex(table: Table) -> str:
    r"""A table for a paper, in booktabs' rules; intervals stand behind their numbers.

    >>> from headscan.report.kit.parts import Column, Line
    >>> print(latex(Table(["site", Column("CKA", places=2)], [Line("block_0", [Cell(0.5, (0.4, 0.6))])])))
    \begin{tabular}{lr}
    \toprule
    site & CKA \\
    \midrule
    block\_0 & 0.50 [0.40, 0.60] \\
    \bottomrule
    \end{tabular}
    """
    shown = [(place, column) for place, column in enumerate(table.heads) if column.where != "terminal"]
    kinds = "".join("l" if column.text or not place else "r" for place, column in shown)
    titles = [f"{column.group}, {column.title}" if column.group else column.title for _, column in shown]
    lines = [rf"\begin{{tabular}}{{{kinds}}}", r"\toprule", " & ".join(map(_escaped, titles)) + r" \\", r"\midrule"]
    for line in table.lines:
        cells = [cell if isinstance(cell, Cell) else Cell(cell) for cell in line.cells]
        label = f"{line.label} {line.note}".strip()
        words = [label if not place else "" for place, _ in shown[:1]]
        for place, column in shown[1:]:
            cell = cells[place - 1] if place <= len(cells) else Cell(None)
            text = written(cell.value, column)
            if cell.interval:
                text += " [" + ", ".join(written(end, column) for end in cell.interval) + "]"
            words.append(text)
        lines.append(" & ".join(map(_escaped, words)) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])


def _escaped(text: str) -> str:
    found, power = "", ""
    for letter in clean(text):
        if letter in SUPERSCRIPTS:
            power += SUPERSCRIPTS[letter]
            continue
        found, power = found + (f"$^{{{power}}}$" if power else "") + ESCAPES.get(letter, letter), ""
    return found + (f"$^{{{power}}}$" if power else "")
