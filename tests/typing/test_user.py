"""The public face is typed: a user's script has no error and no Any, and a wrong option is an error before it runs."""

from __future__ import annotations

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


def checked(words: list[str]) -> str:
    return subprocess.run(words, capture_output=True, text=True, cwd=SCRIPT.parents[2]).stdout


def revealed(said: str, pattern: str) -> list[str]:
    return re.findall(pattern, said)


def held(types: list[str], count: int) -> None:
    assert len(types) == count, types
    assert [one for one in types if re.search(r"\bAny\b|\bUnknown\b", one)] == []


def test_mypy_finds_no_error_and_no_any(script):
    said = checked([sys.executable, "-m", "mypy", "--strict", str(script)])
    errors = [line for line in said.splitlines() if "error:" in line]
    assert [line for line in errors if "user.py" in line] == []
    held(revealed(said, r'Revealed type is "(.*)"'), SCRIPT.read_text().count("reveal_type("))


def test_mypy_names_a_wrong_option(tmp_path):
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        'import headscan\nheadscan.scan("m", "t", contxt=3)\nheadscan.invert("m", "p", nosuchoption=3)\nheadscan.ntp("t")\n'
    )
    said = checked([sys.executable, "-m", "mypy", "--strict", str(wrong)])
    assert "contxt" in said
    assert "nosuchoption" in said
    assert "not callable" in said


def test_pyright_finds_no_error_and_no_any(script):
    pyright = shutil.which("pyright")
    if pyright is None:
        message = "pyright is not here: the public types are checked by mypy alone"
        warnings.warn(message, stacklevel=1)
        pytest.skip(message)
    said = checked([pyright, "--pythonpath", sys.executable, str(script)])
    assert " - error" not in said, said
    held(revealed(said, r"Type of \".*\" is \"(.*)\""), SCRIPT.read_text().count("reveal_type("))
