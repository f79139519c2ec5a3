"""Figures as files and tables as LaTeX: what a paper takes from a result."""

import re
import warnings

import numpy as np
import pytest

import headscan
from headscan.diagnosis import publish
from headscan.report.kit.paper import latex, write_figures
from headscan.report.kit.parts import (
    Cell,
    Figure,
    Head,
    Line,
    Page,
    Provenance,
    Section,
    Table,
)
from headscan.run import BadInput
from headscan.run.vocabulary import Term


def page(*figures):
    return Page(
        "kind",
        Head(["a"], "b"),
        [Section("s", parts=list(figures))],
        [],
        [],
        Provenance("", "", [], ""),
        "0",
    )


@pytest.mark.browser
def test_figures_are_written_as_svg_and_pdf(tmp_path, chromium_without_webgl):
    import plotly.graph_objects as go

    try:
        import kaleido  # noqa: F401
    except ModuleNotFoundError:
        warnings.warn("kaleido is not installed: figures for papers are NOT tested", stacklevel=1)
        pytest.skip("kaleido is not installed: figures for papers are NOT tested")
    figure = Figure("line", go.Figure(go.Scatter(y=[1, 2])), "a line")
    paths = write_figures(page(figure), tmp_path)
    assert [path.name for path in paths] == ["line.svg", "line.pdf"]
    assert paths[0].read_text().lstrip().startswith("<svg")
    assert paths[1].read_bytes().startswith(b"%PDF")


def test_a_missing_extra_is_said(tmp_path, monkeypatch, capsys):
    from headscan.cli import main

    np.save(tmp_path / "states.npy", np.random.default_rng(0).standard_normal((64, 8)))
    headscan.scan(tmp_path / "states.npy", out=tmp_path / "out")
    monkeypatch.setattr(
        "sys.argv", ["headscan", "figures", str(tmp_path / "out"), str(tmp_path / "figures")]
    )
    monkeypatch.setattr("headscan.report.kit.paper.find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="2"):
        main()
    assert (
        capsys.readouterr().err
        == "headscan: Figures for papers need kaleido: pip install 'headscan[figures]'.\n"
    )
    assert not list(tmp_path.glob("figures/*"))


def test_what_cannot_be_written_is_said(tmp_path):
    with pytest.raises(BadInput, match="has no figure"):
        write_figures(page(), tmp_path)
    with pytest.raises(BadInput, match="not as tiff"):
        write_figures(page(Figure("x", lambda: None, "x")), tmp_path, ["tiff"])


NAMES = [
    "a|b",
    "`x`",
    "C:\\new\\table",
    "$x$ and $",
    "a & b % c # d",
    "a\nb\r\n\nc",
    "[5pt]",
    "*[red]*",
    "{}~^_",
    "<b>&lt;",
    "\x1b[2J\x07\x00",
    "\u202eright\u2028",
    "~~gone~~",
    "=cmd|' /C calc'!A0",
    "<!-- headscan checkup -->",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_stays_a_cell_of_its_own_in_latex_and_markdown(name):
    line = Line(name, [Cell(0.5, (0.4, 0.6))])
    table = latex(Table(["site", Term("CKA", places=2)], [line, line]))
    rows = table.partition("\\midrule\n")[2].partition("\\bottomrule")[0].splitlines()
    assert len(rows) == 2, table
    for row in rows:
        # what is left of it commands nothing but its two cells
        bare = re.sub(r"\\(text\w+\{\}|[&%$#_{}])", "", row)
        assert re.fullmatch(
            r"(\{\})?[^\\&%$#_{}^~|<>\x00-\x1f]* & 0\.50 \[0\.40, 0\.60\] \\\\", bare
        ), row
        assert not row.startswith(("[", "*"))
    markdown = pytest.importorskip("markdown_it").MarkdownIt("gfm-like", {"linkify": False})
    tokens = markdown.parse(
        f"| {publish._escaped(name)} | 1 |\n|---|---|\n| {publish._escaped(name)} | 2 |\n"
    )
    cells = [token.children for token in tokens if token.type == "inline"]
    assert len(cells) == 4
    assert {child.type for cell in cells for child in cell} <= {"text", "text_special"}
    shown = "".join(child.content for child in cells[0])
    assert shown == " ".join(re.sub("[\x00\x07\x1b\u202e]", "\ufffd", name).split())
