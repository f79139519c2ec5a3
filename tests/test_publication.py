"""What a package index and a newcomer see: one version, links that lead somewhere, a wheel that
stays small and whole.
"""

import re
import tomllib
import zlib
from pathlib import Path

import pytest

import headscan
from headscan.model.available import OTHERS

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SPECIMENS = tomllib.loads(
    (ROOT / "packaging" / "specimens" / "pyproject.toml").read_text(encoding="utf-8")
)
OWN = "https://github.com/headscan/headscan/blob/main/"
RAW = "https://raw.githubusercontent.com/headscan/headscan/main/"
PAGES = sorted(
    page
    for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("packaging/**/*.md"))
    if "_build" not in page.parts
)
LINK = re.compile(r"(?<!\\)\]\(<?([^)\s>]+)>?(?: \"[^\"]*\")?\)")


def text(page: Path) -> str:
    """A page without its code, in which brackets mean something else."""
    prose = re.sub(
        r"^( *)(```|~~~).*?^\1\2", "", page.read_text(encoding="utf-8"), flags=re.M | re.S
    )
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


def test_there_is_one_version():
    assert "version" not in PROJECT["project"]
    assert "version" in PROJECT["project"]["dynamic"]
    assert PROJECT["tool"]["hatch"]["version"]["path"] == "src/headscan/__init__.py"
    assert SPECIMENS["tool"]["hatch"]["version"]["path"] == "../../src/headscan/__init__.py"
    cited = re.search(
        r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), flags=re.M
    )
    changed = re.search(
        r"^## \[(\S+)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.M
    )
    assert cited
    assert changed
    assert cited[1] == changed[1] == headscan.__version__


def test_three_specimens_are_in_a_package_of_their_own():
    prefix = "src/headscan/model/specimens/"
    left_out = PROJECT["tool"]["hatch"]["build"]["exclude"]
    included = SPECIMENS["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert left_out == [prefix + name for name in OTHERS]
    assert list(included) == ["../../" + path for path in left_out]
    assert [path.removeprefix("headscan/model/specimens/") for path in included.values()] == list(
        OTHERS
    )
    assert PROJECT["project"]["optional-dependencies"]["specimens"] == [
        SPECIMENS["project"]["name"]
    ]


def test_the_wheel_stays_under_six_megabytes():
    """As a wheel packs its files, one by one; `make wheel` weighs the one that was built."""
    left_out = tuple(str(ROOT / path) for path in PROJECT["tool"]["hatch"]["build"]["exclude"])
    files = [
        path
        for path in (ROOT / "src" / "headscan").rglob("*")
        if path.is_file()
        and "__pycache__" not in path.parts
        and not str(path).startswith(tuple(f"{p}/" for p in left_out))
    ]
    # the name and the hash of each, in the archive's directory and in RECORD
    names = 300 * len(files)
    assert sum(len(zlib.compress(path.read_bytes(), 6)) for path in files) + names < 6_000_000
