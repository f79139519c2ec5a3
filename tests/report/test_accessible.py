"""Every kind of page, made by a small real run: light and dark, wide and on a phone, axe-core finds
nothing against it, and names of models and texts that would be markup and scripts are text.

Several kinds are put into one page, which is opened once; what stands at the head of each page is
looked at in its markup.
"""

import importlib.util
import re
import shlex
import shutil
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

import headscan
from headscan.model import specimen_path
from headscan.report.kit import palette
from headscan.report.kit.html import html
from headscan.report.kit.parts import Figure, Panels, Section, figures_of
from headscan.report.kit.register import assemble
from headscan.text.source import embedded

# By its place: a folder of scripts on the path would hide installed packages that have a script's
# name.
_SPEC = importlib.util.spec_from_file_location(
    "pages", Path(__file__).resolve().parents[2] / "scripts" / "pages.py"
)
pages = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(pages)

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def axe():
    if pages.axe() is None:
        warnings.warn(
            "axe-playwright-python is not installed: accessibility is NOT tested", stacklevel=1
        )
        pytest.skip("axe-playwright-python is not installed: accessibility is NOT tested")


def test_no_kind_is_left_out():
    schemas = Path(__file__).resolve().parents[2] / "docs" / "schemas"
    assert {path.stem for path in schemas.glob("*.json")} == set(pages.EXAMPLES)


NAME = (
    '"><img src=x onerror=window.pwned=1><a href=javascript:window.pwned=2>{}<'
    + "/script><script>window.pwned=3"
)
SAID = (
    "Once <img src=x onerror=window.pwned=4> </script><script>window.pwned=5</script> \"'` "
    "{{7*7}} ${x}$ "
)
CLICKED = """() => {
    const selector = "button:not([data-take]), summary, [data-figure], td, th, mark, input, "
      + "select, [tabindex]";
    for (const element of (REPRESENTATIVES)([...document.querySelectorAll(selector)])) {
      element.dispatchEvent(new MouseEvent("mouseover", {bubbles: true}));
      element.click();
    }
    return document.querySelectorAll("img[onerror], a[href^=javascript]").length; }"""
WIDENED_BY_THIRTY_CONES = """() => {
    const cones = document.querySelector(".slices div");
    const cell = cones.closest("td");
    const before = cell.clientWidth;
    while (cones.children.length < 30) cones.append(cones.firstElementChild.cloneNode(true));
    return [before, cell.clientWidth];
}"""
CLICKED = CLICKED.replace("REPRESENTATIVES", pages.REPRESENTATIVES)
SHARED = [
    ("checkup",),
    ("scan",),
    ("attribute", "states", "verification", "compare", "changes", "ntp", "privacy", "channel"),
    (
        *("flow", "invert", "weights", "damage", "train", "recover", "tournament", "remedy"),
        *("evaluation", "reproduce"),
    ),
]
"""Kinds that are opened in one page: starting plotly takes longer than a page's own parts. At most
one of them has a script of its own.
"""


def intruded(command: str) -> str:
    """The command, its models and its text under names that are markup, beside it in a folder; the
    text has markup as well.
    """
    arguments = []
    for word in shlex.split(command):
        if word in ("gpt-vanilla", "gpt-vanilla-early", "gpt-headless"):
            path = Path(NAME.format(word))
            shutil.copytree(specimen_path(word), path, dirs_exist_ok=True)
            word = str(path)
        elif word == "stories":
            path = Path(NAME.format(word) + ".txt")
            path.parent.mkdir(parents=True)
            lines = embedded("stories").read_text(encoding="utf-8").split("\n")
            lines[::7] = [f"{line} {SAID}" for line in lines[::7]]
            path.write_text("\n".join(lines), encoding="utf-8")
            word = str(path)
        arguments.append(word)
    return shlex.join(arguments)


def faults_of_table(result):
    """What keeps a result's table from being used as it is: no rows, intervals in one cell; and
    LaTeX that is not one table.
    """
    frame = result.frame()
    faults = [] if len(frame) else ["the table is empty"]
    faults += [f"{name} is an interval" for name in frame.columns if name.endswith("interval")]
    try:
        if result.to_latex().count("\\begin{tabular}") != 1:
            faults.append("LaTeX is not one table")
    except headscan.BadInput as error:
        if "has no table" not in str(error):
            raise
    return faults


def faults_of_figures(result):
    """What keeps a figure from being read: one point, a logarithmic axis without readable ticks, a
    grid that stays white in dark, two lines of one look.
    """
    faults = []
    for part in assemble(result).parts():
        for figure in figures_of(part):
            drawn = figure.drawn()
            axes = {name: drawn.layout[name] for name in drawn.layout if name[1:5] == "axis"}
            for name, axis in axes.items():
                if axis.gridcolor != palette.ROLES["hairline"][0]:
                    faults.append(f"{figure.name}: the grid of {name} is of another colour")
                if axis.type == "log" and not (axis.dtick and axis.tickformat):
                    faults.append(f"{figure.name}: {name} has no readable ticks")
            curves = [trace for trace in drawn.data if trace.type == "scatter"]
            lines = [trace for trace in curves if "lines" in str(trace.mode) and trace.name]
            if lines and max(len(trace.x) for trace in lines) < 2:
                faults.append(f"{figure.name}: one point")
            looks = {}
            for trace in lines:
                look = (trace.line.color, trace.line.dash, trace.yaxis, str(trace.meta))
                if looks.setdefault(look, trace.name) != trace.name and trace.line.dash:
                    faults.append(f"{figure.name}: {trace.name} looks like {looks[look]}")
    return faults


def made(kind, folder, monkeypatch):
    """The result of a kind's command, whose page and table are looked at."""
    folder.mkdir()
    monkeypatch.chdir(folder)
    command = intruded(pages._command(kind, folder))
    with monkeypatch.context() as patched:
        patched.setattr(pages, "_command", lambda *_: command)
        path = pages.make(kind, folder)
    assert path.stat().st_size < 2_500_000
    markup = path.read_text(encoding="utf-8").partition("<main")
    assert markup[0].count("<h1") == markup[0].count('<p class="deck') == 1
    assert markup[0].count('data-take="result.json"') == 1
    assert not re.search(r"<h1[^>]*><bdi>[/.]", markup[0])
    assert markup[2].count('id="protocol-title"') == 1
    assert "cannot be shown" not in markup[2].partition('<script type="application/json"')[0]
    result = headscan.load(folder)
    assert faults_of_table(result) == []
    assert faults_of_figures(result) == []
    return result


def renamed(part, prefix):
    """A part whose figures have names of their own in a page of several kinds."""
    if isinstance(part, Figure):
        return replace(part, name=f"{prefix}-{part.name}")
    if isinstance(part, Panels):
        return replace(part, figures=[renamed(figure, prefix) for figure in part.figures])
    return part


def joined(results):
    """One page with the heads, findings and sections of several results."""
    several = [assemble(result) for result in results]
    if len(several) == 1:
        return several[0]
    sections = []
    for page in several:
        top = Section("Result", page.head.conclusion, page.head.top, name="top")
        for section in [top, *page.sections]:
            parts = [renamed(part, page.kind) for part in section.parts]
            sections.append(
                replace(
                    section,
                    parts=parts,
                    title=f"{page.kind}: {section.title}",
                    name=f"{page.kind}-{section.name}",
                )
            )
    titles = [title for page in several for title in page.head.titles]
    return replace(
        several[0],
        head=replace(several[0].head, titles=titles, top=()),
        sections=sections,
        findings=[finding for page in several for finding in page.findings],
        glossary=list(dict.fromkeys(term for page in several for term in page.glossary)),
    )


def test_every_kind_is_opened():
    assert sorted(kind for kinds in SHARED for kind in kinds) == sorted(pages.EXAMPLES)


@pytest.mark.parametrize("kinds", SHARED, ids=lambda kinds: kinds[0])
def test_pages_keep_nobody_out_and_run_nothing_of_the_data(
    kinds, tmp_path, chromium_without_webgl, axe, visit, monkeypatch
):
    results = [made(kind, tmp_path / kind, monkeypatch) for kind in kinds]
    path = tmp_path / "joined.html"
    path.write_text(html(joined(results)), encoding="utf-8")
    with visit(chromium_without_webgl, path) as opened:
        page = opened.page
        # Both widths and both colours; `scripts/pages.py` looks at all four combinations.
        for number, (width, scheme) in enumerate(pages.VIEWS[::3]):
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=scheme)
            page.wait_for_function(f"document.documentElement.scrollWidth <= {width}")
            assert pages.violations(page, contrast_only=number > 0) == []
        if kinds == ("checkup",):  # its heading is a sentence, of which no part may be cut off
            heading = page.locator("h1 bdi")
            assert heading.evaluate("one => getComputedStyle(one).whiteSpace") == "normal"
            page.set_viewport_size({"width": 1280, "height": 900})
            before, after = page.evaluate(WIDENED_BY_THIRTY_CONES)
            assert before == after > 20
        assert page.evaluate(CLICKED) == 0
        page.wait_for_timeout(50)
        assert page.evaluate("window.pwned") is None
        opened.clean()
