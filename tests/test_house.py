"""The walls of the house: which package may import which, how long a file may be, and that written pages are true."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "headscan"
FILES = sorted(SOURCE.rglob("*.py"))

# text -> model -> statistics -> geometry -> report, and never back.
MAY_IMPORT = {
    "run": set(),
    "text": {"errors", "run"},
    "model": {"errors", "run", "text"},
    "statistics": {"errors", "run"},
    "geometry": {"errors", "run", "results", "text", "model", "statistics"},
    # Their results, as types.
    "report": {"errors", "run", "attribution", "claims", "flow", "geometry", "inversion", "ntp", "training"},
    "results": {"errors", "run"},
}


def imports(path: Path) -> set[str]:
    """Modules named by the import statements of a file, wherever they stand in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= (
                {f"{node.module}.{alias.name}" for alias in node.names} if node.module == "headscan" else {node.module}
            )
    return found


def package(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_run_one_way(path):
    home = package(path)
    for name in imports(path):
        if name.startswith("headscan."):
            other = name.split(".")[1]
            if home in MAY_IMPORT:
                assert other in MAY_IMPORT[home] | {home}, f"{home} must not import {name}"
            if home == "cli":
                assert other == "cli" or name.count(".") == 1, f"the command line imports the façade only, not {name}"
        if home in ("statistics", "ntp"):
            assert name.split(".")[0] != "transformers", f"{home} knows no language model"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_file_is_too_long(path):
    assert len(path.read_text().splitlines()) <= 600


def test_importing_the_package_loads_no_heavy_library():
    code = "import sys, headscan; print([m for m in ('torch', 'transformers', 'plotly', 'pandas') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_page_of_measures_is_up_to_date():
    subprocess.run([sys.executable, str(ROOT / "scripts" / "measures.py"), "--check"], check=True)


def test_versions_agree():
    import headscan

    assert f"version: {headscan.__version__}" in (ROOT / "CITATION.cff").read_text()
    assert re.search(r"^torch==2\.13\.0$", (ROOT / "constraints.txt").read_text(), re.M)
