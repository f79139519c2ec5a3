"""Figures as files and tables as LaTeX: what a paper takes from a result."""

import warnings

import numpy as np
import pytest

import headscan
from headscan.report.kit.parts import Figure, Head, Page, Section, Shown
from headscan.report.kit.terminal import write_figures
from headscan.run import BadInput


def page(*figures):
    return Page("kind", Head(["a"], "b"), [Section("s", parts=list(figures))], [], [], Shown("", "", [], ""), "0")


@pytest.mark.browser
def test_figures_are_written_as_svg_and_pdf(tmp_path, chromium_without_webgl):
    import plotly.graph_objects as go

    try:
        import kaleido  # noqa: F401
    except ModuleNotFoundError:
        warnings.warn("kaleido is not installed: figures for papers are NOT tested", stacklevel=1)
        pytest.skip("kaleido is not installed: figures for papers are NOT tested")
    figure = Figure("line", go.Figure(go.Scatter(y=[1, 2])), "a line")
    found = write_figures(page(figure), tmp_path)
    assert [path.name for path in found] == ["line.svg", "line.pdf"]
    assert found[0].read_text().lstrip().startswith("<svg")
    assert found[1].read_bytes().startswith(b"%PDF")


def test_a_missing_extra_is_said(tmp_path, monkeypatch, capsys):
    from headscan.cli import main

    np.save(tmp_path / "states.npy", np.random.default_rng(0).standard_normal((64, 8)))
    headscan.scan(tmp_path / "states.npy", out=tmp_path / "out")
    monkeypatch.setattr("sys.argv", ["headscan", "figures", str(tmp_path / "out"), str(tmp_path / "figures")])
    monkeypatch.setattr("headscan.report.kit.terminal.find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="2"):
        main()
    assert capsys.readouterr().err == "headscan: Figures for papers need kaleido: pip install 'headscan[figures]'.\n"
    assert not list(tmp_path.glob("figures/*"))


def test_what_cannot_be_written_is_said(tmp_path):
    with pytest.raises(BadInput, match="has no figure"):
        write_figures(page(), tmp_path)
    with pytest.raises(BadInput, match="not as tiff"):
        write_figures(page(Figure("x", lambda: None, "x")), tmp_path, ["tiff"])
