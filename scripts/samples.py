"""Run every `$` command of the user's pages as it stands, and compare what it prints with the page.

    python scripts/samples.py [PAGE ...]

A line `...` in a page stands for lines that are left out, and `...` at the end of a line for the
rest of it. Snippets of Python before a command are run first. Two minutes on one core.
tests/test_pages.py does the same for README, and runs all other commands on less text.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import words

ROOT = Path(__file__).resolve().parents[1]
STEP = re.compile(
    r"^```python\n(?P<python>.*?)^```"
    r"|^ {4}\$ (?:\.venv/bin/)?(?P<shell>headscan [^\n]*)\n"
    r"(?P<printed>(?: {4}(?!\$ )[^\n]*\n|\n(?= {4}))*)",
    re.M | re.S,
)
NEEDS = "# needs: "
"""The beginnings of snippets that need what only a user has."""
COLUMNS = "100"


@dataclass(frozen=True)
class Sample:
    """A command of a page and what the page says that it prints."""

    page: str
    command: str
    printed: str


def steps(text: str) -> Iterator[re.Match[str]]:
    """Yield the snippets of Python and the commands of a page, in its order."""
    return STEP.finditer(text)


def differences(printed: str, output: str) -> list[str]:
    """Return the lines of a page that a command does not print, or not in this order.

    >>> differences("a  1\\n...\\nb 2, ...", "x\\na 1\\nc\\nb 2, 3")
    []
    >>> differences("a 1\\nb 3", "a 1\\nb 2")
    ['b 3']
    """
    flat = " ".join(output.split())
    position = 0
    missing = []
    for line in printed.splitlines():
        wanted = " ".join(line.removesuffix("...").split())
        if not wanted or line.strip().startswith("..."):
            continue
        found = flat.find(wanted, position)
        if found < 0:
            missing.append(line.strip())
        else:
            position = found + len(wanted)
    return missing


def run(command: str, folder: Path) -> str:
    """Return what a command prints in a folder."""
    environment = os.environ | {"COLUMNS": COLUMNS}
    arguments = [sys.executable, "-m", *shlex.split(command)]
    ended = subprocess.run(
        arguments, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    return ended.stdout + ended.stderr


def outputs(page: Path) -> Iterator[tuple[Sample, str]]:
    """Yield the samples of a page, and what each command prints."""
    with tempfile.TemporaryDirectory() as work_folder:
        folder = Path(work_folder)
        names: dict[str, object] = {"__name__": "__main__"}
        for step in steps(page.read_text(encoding="utf-8")):
            code = step["python"]
            if code is None:
                name = str(page.relative_to(ROOT))
                sample = Sample(name, step["shell"], step["printed"])
                yield sample, run(sample.command, folder)
            elif ">>>" not in code and not code.startswith(NEEDS):
                os.chdir(folder)
                with redirect_stdout(io.StringIO()):
                    exec(compile(code, str(page), "exec"), names)


def main() -> None:
    """Print what differs, and end with status 1 where anything does."""
    pages = [page for kind in words.USER_KINDS for page in words.pages(kind)]
    named = [ROOT / name for name in sys.argv[1:]]
    wrong = 0
    for page in named or pages:
        for sample, output in outputs(page):
            missing = differences(sample.printed, output)
            wrong += len(missing)
            verdict = "differs" if missing else "equal"
            print(f"{verdict}: {sample.page}: {sample.command}", flush=True)
            for line in missing:
                print(f"    not printed: {line}")
            if missing:
                print(output)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
