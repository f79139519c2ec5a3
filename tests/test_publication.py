"""What a package index and a newcomer see: one version, links that lead somewhere, a wheel that
stays small and whole.
"""

import importlib.util
import re
import tomllib
import zlib
from pathlib import Path

import pytest

import headscan

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
OWN = "https://github.com/headscan/headscan/blob/main/"
RAW = "https://raw.githubusercontent.com/headscan/headscan/main/"
PAGES = sorted(
    page for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")) if "_build" not in page.parts
)
LINK = re.compile(r"(?<!\\)\]\(<?([^)\s>]+)>?(?: \"[^\"]*\")?\)")


def text(page: Path) -> str:
    """A page without its code, in which brackets mean something else."""
    return text_of(page.read_text(encoding="utf-8"))


def text_of(markdown: str) -> str:
    """Markdown without its code."""
    prose = re.sub(r"^( *)(```|~~~).*?^\1\2", "", markdown, flags=re.M | re.S)
    return re.sub(r"^ {4,}(>>>|\.\.\.) .*$|`[^`\n]*`", "", prose, flags=re.M)


def anchors(page: Path) -> set[str]:
    """Return what can stand after # for a page: its headings as GitHub names them, and anchors that
    it sets itself.
    """
    names = set(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", page.read_text(encoding="utf-8")))
    for heading in re.findall(r"^#+ +(.*?)\s*$", page.read_text(encoding="utf-8"), flags=re.M):
        name = re.sub(
            r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        ).replace(" ", "-")
        names.add(
            name
            if name not in names
            else next(f"{name}-{i}" for i in range(1, 99) if f"{name}-{i}" not in names)
        )
    return names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page):
    broken = []
    for link in LINK.findall(text(page)):
        if link.startswith((OWN, RAW)):
            path = ROOT / link.removeprefix(OWN).removeprefix(RAW)
            fragment = ""
        elif re.match(r"[a-z]+:", link):
            continue
        else:
            path, _, fragment = link.partition("#")
            path = page.parent / path if path else page
        if not path.exists() or (
            fragment and path.suffix == ".md" and fragment not in anchors(path)
        ):
            broken.append(link)
    assert not broken, f"{page.name}: {broken}"


def test_every_link_of_the_readme_is_absolute_on_a_package_index():
    """hatch-fancy-pypi-readme makes the substitutions of pyproject.toml when the package
    is built.
    """
    hook = PROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = readme
    for rule in hook["substitutions"]:
        shown = re.sub(rule["pattern"], rule["replacement"], shown)
    links = LINK.findall(shown)
    assert len(links) == len(LINK.findall(readme)) > 10
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
    for link in links:
        if link.startswith((OWN, RAW)):
            assert (ROOT / link.removeprefix(OWN).removeprefix(RAW).partition("#")[0]).exists(), (
                link
            )
        assert link.startswith(RAW) == link.endswith((".png", ".svg")), link
    assert "<img" not in readme


def test_the_numbers_of_the_readme_are_those_of_the_benchmarks():
    spec = importlib.util.spec_from_file_location("readme", ROOT / "scripts" / "readme.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    benchmarks = (ROOT / "lab/docs/benchmarks.md").read_text(encoding="utf-8")
    assert module.rewritten(readme, benchmarks) == readme
    for _, row in module.claims(benchmarks):
        assert row in readme


def test_a_changed_number_of_the_readme_is_found():
    spec = importlib.util.spec_from_file_location("readme", ROOT / "scripts" / "readme.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    benchmarks = (ROOT / "lab/docs/benchmarks.md").read_text(encoding="utf-8")
    for start, line in module.claims(benchmarks):
        digit = re.compile(r"(?<=\s)\d(?=[\d.,%]*\s)").search(line, len(start))
        assert digit, line
        changed = f"{line[: digit.start()]}{(int(digit[0]) + 1) % 10}{line[digit.end() :]}"
        assert changed.startswith(start)
        assert module.rewritten(changed, benchmarks) == line


def test_every_number_of_the_readme_has_a_source():
    """Numbers outside of code and of the lines that scripts/readme.py writes."""
    spec = importlib.util.spec_from_file_location("readme", ROOT / "scripts" / "readme.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    benchmarks = (ROOT / "lab/docs/benchmarks.md").read_text(encoding="utf-8")
    page = text(ROOT / "README.md")
    for _, line in module.claims(benchmarks):
        page = page.replace(text_of(line), "")
    page = re.sub(r"^ {4}.*$|\]\([^)]*\)", "", page, flags=re.M)
    numbers = set(re.findall(r"(?<![\w.-])\d[\d.,]*\d|(?<![\w.-])\d", page))
    recipes = (ROOT / "scripts" / "make_specimens.py").read_text(encoding="utf-8")
    picture = (ROOT / "docs" / "images" / "layers.svg").read_text(encoding="utf-8")
    dependencies = " ".join(PROJECT["project"]["dependencies"])
    slices = picture.count('<path class="trained" d=')
    sources = {
        "120": "steps=120" in recipes,
        "4,000": "steps=4000" in recipes,
        "28": slices in (29, 30),  # embedding and final norm, too
        "4,096": "--max-tokens 4096" in (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8"),
        "128": "Default: 128;" in (ROOT / "src/headscan/text/source.py").read_text("utf-8"),
        "3.11": PROJECT["project"]["requires-python"].startswith(">=3.11"),
        "3.14": "Programming Language :: Python :: 3.14" in PROJECT["project"]["classifiers"],
        "2": "torch>=2" in dependencies,
        "5": "transformers>=5" in dependencies,
    }
    assert numbers <= set(sources)
    assert [number for number in numbers if not sources[number]] == []


def test_there_is_one_version():
    assert "version" not in PROJECT["project"]
    assert "version" in PROJECT["project"]["dynamic"]
    assert PROJECT["tool"]["hatch"]["version"]["path"] == "src/headscan/__init__.py"
    cited = re.search(
        r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), flags=re.M
    )
    changed = re.search(
        r"^## \[(\S+)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.M
    )
    assert cited
    assert changed
    assert cited[1] == changed[1] == headscan.__version__
    paper = (ROOT / "docs" / "how-to" / "paper.md").read_text(encoding="utf-8")
    bibtex = re.search(r"^  version = \{(\S+)\},$", paper, flags=re.M)
    assert bibtex
    assert bibtex[1] == headscan.__version__.removesuffix(".dev0")


def test_the_wheel_has_every_model_of_the_readme():
    """The wheel packs all of src/headscan; its models are folders there."""
    build = PROJECT["tool"]["hatch"]["build"]
    assert "exclude" not in build
    assert build["targets"]["wheel"] == {"packages": ["src/headscan"]}
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\bgpt-(?:vanilla|headless)(?:-early)?\b", readme))
    assert {"gpt-vanilla", "gpt-vanilla-early"} <= named <= set(headscan.specimens())


def test_the_wheel_stays_under_thirteen_megabytes():
    """As a wheel packs its files, one by one; `make wheel` weighs the one that was built."""
    weight = {"models": 0, "everything else": 0}
    for path in (ROOT / "src" / "headscan").rglob("*"):
        if not path.is_file() or "__pycache__" in path.parts:
            continue
        kind = "models" if "specimens" in path.parts else "everything else"
        # 300: the name and the hash, in the archive's directory and in RECORD
        weight[kind] += len(zlib.compress(path.read_bytes(), 6)) + 300
    assert weight["models"] < 11_000_000
    assert weight["everything else"] < 2_000_000
