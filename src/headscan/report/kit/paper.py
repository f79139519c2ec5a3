"""The figures of a page as SVG and PDF and its tables as LaTeX, for papers."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import plotly.graph_objects as go

from headscan.report.kit.parts import Cell, Figure, FullLine, Heading, Page, Table, figures_of
from headscan.report.kit.words import clean, written
from headscan.run import BadInput, Term

FORMATS = ("svg", "pdf")
WIDTH = 640  # pixels; SVG and PDF have no resolution
ESCAPES = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "−": "$-$",
    "×": r"$\times$",
    "–": "--",
    "—": "---",
    "\ufffd": "?",
    "|": r"\textbar{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "σ": r"$\sigma$",
    "‖": r"$\|$",
}
SUPERSCRIPTS = dict(zip("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789", strict=True))


def check_kaleido() -> None:
    """Raise BadInput where kaleido, which writes figures, is not installed.

    It is called before the work whose figures they are.
    """
    if find_spec("kaleido") is None:
        raise BadInput("Figures for papers need kaleido: pip install 'headscan[figures]'.")


def write_figures(page: Page, folder: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Write every figure of a page as NAME.FORMAT and return the paths.

    Figures are in the light colours on white, and as large as on the page. Raises BadInput where
    kaleido or a Chrome is missing, or a format is none of SVG, PDF, PNG.
    """
    for file_format in formats:
        if file_format not in (*FORMATS, "png"):
            raise BadInput(f"Figures are written as svg, pdf or png, not as {file_format}.")
    figures = {figure.name: figure for part in page.parts() for figure in figures_of(part)}
    if not figures:
        raise BadInput(f"A result of the verb '{page.kind}' has no figure.")
    check_kaleido()
    import plotly.io

    images = []
    paths = []
    for name, figure in figures.items():
        image = _on_white(figure)
        for file_format in formats:
            images.append(image)
            paths.append(folder / f"{name}.{file_format}")
    try:
        plotly.io.write_images(images, [str(path) for path in paths])
    except Exception as error:  # whatever keeps the browser from starting
        reason = str(error).splitlines()[0]
        raise BadInput(
            f"The figures could not be drawn ({reason}): is Chrome or Chromium installed?"
        ) from None
    return paths


def _on_white(figure: Figure) -> go.Figure:
    return go.Figure(figure.drawn()).update_layout(
        width=WIDTH, height=figure.height, paper_bgcolor="white", plot_bgcolor="white"
    )


def latex(table: Table) -> str:
    r"""Return a table for a paper, in booktabs' rules; intervals stand behind their numbers.

    >>> from headscan.report.kit.parts import Line
    >>> line = Line("block_0", [Cell(0.5, (0.4, 0.6))])
    >>> print(latex(Table(["site", Term("CKA", places=2)], [line])))
    \begin{tabular}{lr}
    \toprule
    site & CKA \\
    \midrule
    block\_0 & 0.50 [0.40, 0.60] \\
    \bottomrule
    \end{tabular}
    """
    headings = table.headings("terminal" if table.where == "terminal" else "page")
    alignment = "".join("l" if heading.text else "r" for heading in headings)
    titles = [_title(heading.term) for heading in headings]
    return "\n".join(
        [
            rf"\begin{{tabular}}{{{alignment}}}",
            r"\toprule",
            _row(titles),
            r"\midrule",
            *(_line(line, headings[1:]) for line in table.lines),
            r"\bottomrule",
            r"\end{tabular}",
        ]
    )


def _title(term: Term) -> str:
    return f"{term.group}, {term.title}" if term.group else term.title


def _line(line: FullLine, headings: Sequence[Heading]) -> str:
    label = f"{line.label} {line.note}".strip()
    texts = [label]
    for column, term, _ in headings:
        cell = line.cells[column - 1] if column <= len(line.cells) else Cell(None)
        texts.append(_cell(cell, term))
    # TeX would take a bracket or an asterisk for an argument of the row before.
    guard = "{}" if label.startswith(("[", "*")) else ""
    return guard + _row(texts)


def _cell(cell: Cell, term: Term) -> str:
    text = written(cell.value, term)
    if cell.interval:
        low, high = cell.interval
        text += f" [{written(low, term)}, {written(high, term)}]"
    return text


def _row(texts: Sequence[str]) -> str:
    return " & ".join(map(_escaped, texts)) + r" \\"


def _escaped(text: str) -> str:
    """Return a text as TeX writes it; runs of superscript digits become powers."""
    escaped = ""
    power = ""
    for letter in clean(text):
        if letter in SUPERSCRIPTS:
            power += SUPERSCRIPTS[letter]
            continue
        if power:
            escaped += f"$^{{{power}}}$"
            power = ""
        escaped += ESCAPES.get(letter, letter)
    if power:
        escaped += f"$^{{{power}}}$"
    return escaped
