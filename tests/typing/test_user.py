"""The public face is typed: a user's script has no error and no Any, and a wrong option is an error
before it runs.
"""

import os
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("user.txt")  # no .py: nobody is to run it


@pytest.fixture
def script(tmp_path) -> Path:
    copied = tmp_path / "user.py"
    copied.write_text(SCRIPT.read_text())
    return copied


def checked(arguments: list[str]) -> str:
    path = {"MYPYPATH": os.pathsep.join(("src", "lab/src"))}
    return subprocess.run(
        arguments, capture_output=True, text=True, cwd=SCRIPT.parents[2], env=os.environ | path
    ).stdout


def revealed(output: str, pattern: str) -> list[str]:
    return re.findall(pattern, output)


def held(types: list[str], count: int) -> None:
    assert len(types) == count, types
    assert [
        revealed_type for revealed_type in types if re.search(r"\bAny\b|\bUnknown\b", revealed_type)
    ] == []


WRONG = (
    'import headscan\nheadscan.scan("m", "t", contxt=3)\nheadscan.invert("m", "p", '
    'nosuchoption=3)\nheadscan.ntp("t")\n'
)


@pytest.fixture(scope="module")
def said_by_mypy(tmp_path_factory) -> str:
    """Return what mypy prints of the user's script and of a wrong one, both in one run."""
    folder = tmp_path_factory.mktemp("scripts")
    (folder / "user.py").write_text(SCRIPT.read_text())
    (folder / "wrong.py").write_text(WRONG)
    options = ["--config-file", "tests/typing/mypy.ini", "--cache-dir", ".mypy_cache/user"]
    return checked(
        [sys.executable, "-m", "mypy", *options, str(folder / "user.py"), str(folder / "wrong.py")]
    )


def test_mypy_finds_no_error_and_no_any(said_by_mypy):
    errors = [line for line in said_by_mypy.splitlines() if "error:" in line]
    assert [line for line in errors if "user.py" in line] == []
    held(
        revealed(said_by_mypy, r'Revealed type is "(.*)"'), SCRIPT.read_text().count("reveal_type(")
    )


def test_mypy_names_a_wrong_option(said_by_mypy):
    wrong = "\n".join(line for line in said_by_mypy.splitlines() if "wrong.py" in line)
    assert "contxt" in wrong
    assert "nosuchoption" in wrong
    assert "not callable" in wrong


def test_pyright_finds_no_error_and_no_any(script):
    pyright = shutil.which("pyright")
    if pyright is None:
        message = "pyright is not here: the public types are checked by mypy alone"
        warnings.warn(message, stacklevel=1)
        pytest.skip(message)
    output = checked([pyright, "--pythonpath", sys.executable, str(script)])
    assert " - error" not in output, output
    held(revealed(output, r"Type of \".*\" is \"(.*)\""), SCRIPT.read_text().count("reveal_type("))
