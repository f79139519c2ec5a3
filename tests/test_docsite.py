"""The site: every thing that is registered has its page, every link of the documentation leads
somewhere, and a fault is found.

`make docs` builds all of it, notebooks executed; here its pages are made, and a few of them built
where Sphinx is installed.
"""

import ast
import importlib
import sys
import warnings
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts" / "docsite"


@pytest.fixture(scope="module")
def docsite():
    """The modules of the script; the path is put back, for a script's name might hide a
    package's.
    """
    path_before = list(sys.path)
    sys.path.insert(0, str(SCRIPTS))
    yield {name: importlib.import_module(name) for name in ("stage", "check")}
    sys.path[:] = path_before


@pytest.fixture(scope="module")
def staged(docsite, tmp_path_factory):
    folder = tmp_path_factory.mktemp("site") / "source"
    docsite["stage"].stage(folder)
    return folder


def test_everything_registered_has_a_page(staged):
    from headscan_lab.ledger.statement import STATEMENTS

    from headscan.cli import verbs
    from headscan.diagnosis import CONDITIONS
    from headscan.measures import MEASURES
    from headscan.states import FORMATS

    schemas = [path.stem for path in (SCRIPTS.parents[1] / "docs" / "schemas").glob("*.json")]
    for folder, names in {
        "measure": MEASURES.names(),
        "findings": CONDITIONS.names(),
        "claims": STATEMENTS.names(),
        "commands": verbs(),
        "formats": [*schemas, *(f"states-{name}" for name in FORMATS.names())],
    }.items():
        assert set(names) <= {path.stem for path in (staged / folder).glob("*.md")}, folder
    assert (staged / "python" / "headscan.measures.rst").read_text().count("autofunction") > 30
    claim = (staged / "claims" / "P1.md").read_text()
    assert "equiangular tight frame" in claim
    assert "at most 1e-06" in claim
    row = next(
        line
        for line in (staged / "ledger.md").read_text().splitlines()
        if line.startswith("| [P1]")
    )
    assert f"**Verdict: {row.split('|')[3].strip()}.**" in claim
    assert "at least 0.5" in (staged / "findings" / "HS101.md").read_text()
    assert len(list((staged / "percent").glob("*.py"))) == 6
    assert "[HS101](../findings/HS101.md)" in (staged / "methods" / "checkup.md").read_text()


def test_links_hold_in_the_site_and_a_broken_one_ends_it(docsite):
    relinked = docsite["stage"].relinked
    moved = relinked(
        "[a](../BENCHMARKS.md#x) [b](schemas) `[c](no)` [d](../LICENSE) [e](generated/tables.md)",
        "docs/ntp.md",
    )
    assert "[a](BENCHMARKS.md#x) [b](formats/index.md) `[c](no)`" in moved
    assert (
        "[d](https://github.com/headscan/headscan/blob/main/LICENSE) [e](generated/tables.md)"
        in moved
    )
    with pytest.raises(SystemExit, match=r"docs/ntp\.md has a broken link: nowhere\.md"):
        relinked("[a](nowhere.md)", "docs/ntp.md")


def test_code_in_a_docstring_ends_on_its_line():
    """The site writes docstrings line by line as reStructuredText, which warns where code does not
    end on its line.
    """
    broken = []
    root = SCRIPTS.parents[1]
    for path in sorted([*(root / "src").rglob("*.py"), *(root / "lab" / "src").rglob("*.py")]):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            ):
                lines = enumerate(node.value.value.splitlines(), node.lineno)
                broken += [
                    f"{path.relative_to(root)}:{number}"
                    for number, line in lines
                    if line.count("`") % 2
                ]
    assert broken == []


def test_what_is_wrong_with_a_site_is_said(docsite, tmp_path):
    page = (
        "<link rel='stylesheet' href='s.css'><a href='b.html#there'>b</a><a "
        "href='https://x.org'>x</a><p id='here'>"
    )
    (tmp_path / "a.html").write_text(page)
    (tmp_path / "b.html").write_text("<p id='there'><a href='a.html#here'>a</a>")
    (tmp_path / "s.css").write_text("p { background: url(s.png) }")
    assert docsite["check"].faults(tmp_path) == []
    (tmp_path / "b.html").write_text(
        "<a href='c.html'>c</a><a href='a.html#no'>a</a><script src='//cdn.org/s.js'></script>"
    )
    (tmp_path / "s.css").write_text("@import url('https://fonts.org/f.css');")
    text = "\n".join(docsite["check"].faults(tmp_path))
    for fault in (
        "c.html, which is not there",
        "a.html#no, which has",
        "//cdn.org/s.js from a network",
        "s.css loads a font",
    ):
        assert fault in text
    assert "b.html#there, which has" in text


def test_pages_are_built_without_a_warning(staged, docsite, tmp_path, capsys):
    try:
        import furo  # noqa: F401
        import myst_parser  # noqa: F401
        import sphinx_gallery  # noqa: F401
    except ImportError as error:
        warnings.warn(f"{error.name} is not installed: the site is NOT built", stacklevel=1)
        pytest.skip(f"{error.name} is not installed (extra 'docs')")
    source = tmp_path / "source"
    source.mkdir()
    (source / "index.md").write_text("# Site\n\n```{toctree}\nHS101\nrun\n```\n")
    finding = (staged / "findings" / "HS101.md").read_text().split("All [findings]")[0]
    (source / "HS101.md").write_text(finding)
    (source / "run.rst").write_text("Run\n===\n\n.. autofunction:: headscan.average_cosine\n")
    from sphinx.cmd.build import main

    options = ["-W", "-q", "-c", str(SCRIPTS), "-D", "extensions=myst_parser,sphinx.ext.autodoc"]
    assert main([*options, str(source), str(tmp_path / "site")]) == 0, capsys.readouterr().err
    assert "average_cosine" in (tmp_path / "site" / "run.html").read_text()
    assert (tmp_path / "site" / "llms.txt").read_text().startswith("# headscan")
    assert docsite["check"].faults(tmp_path / "site") == []
