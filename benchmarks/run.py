"""Run the benchmarks and write BENCHMARKS.md: one section a script, titled by its claim.

    python benchmarks/run.py [NAME ...] [--resume]

Every script prints Markdown on standard output, measures its ratios in one run, and can be run alone. The sections of
scripts that are not named stay as they are, so a single claim can be measured again. A series that was stopped goes on
with --resume: what was measured is kept, unless a script or the processor changed.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from headscan.cli.output import progress_bar
from headscan.run import BadInput, Run, plain, write_atomic

HERE = Path(__file__).parent
PAGE = HERE.parent / "BENCHMARKS.md"
HEAD = """# Benchmarks

Written by `make bench`. Each section is one script of `benchmarks/`, titled by its claim; its ratios are measured in one
run, so a busy machine slows both sides. Times are seconds of wall clock unless said otherwise.
"""


def scripts() -> dict[str, Path]:
    """Every benchmark by its name."""
    found = sorted(HERE.glob("*.py"))
    return {path.stem: path for path in found if path.stem != "run" and not path.stem.startswith("_")}


def title(script: Path) -> str:
    """The first line of the script's docstring."""
    return (ast.get_docstring(ast.parse(script.read_text())) or script.stem).splitlines()[0].rstrip(".")


def processor() -> str:
    """Its name and number of cores."""
    information = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*:\s*(.+)", information.read_text()) if information.exists() else None
    return f"{found.group(1) if found else platform.processor()}, {os.cpu_count()} cores"


def sections() -> dict[str, str]:
    """The page's sections by script name, as they stand."""
    if not PAGE.exists():
        return {}
    found = re.split(r"<!-- (\w+) -->\n", PAGE.read_text())[1:]
    return dict(zip(found[::2], (text.strip() for text in found[1::2]), strict=True))


def measured(script: Path) -> str:
    """A script's section of the page; empty for one that needs arguments."""
    load = os.getloadavg()[0]
    done = subprocess.run([sys.executable, script], capture_output=True, text=True)
    if done.returncode == 2:
        print(f"{script.name} is left out, it needs arguments: {done.stderr.splitlines()[-1]}", file=sys.stderr)
        return ""
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        raise BadInput(f"{script.name} failed; continue with the same command and --resume.")
    about = f"{datetime.now(UTC):%Y-%m-%d}, {processor()}, load {load:.1f} at the start"
    return f"## {title(script)}\n\n`python benchmarks/{script.name}`, {about}.\n\n{done.stdout.strip()}"


def series(names: Sequence[str], run: Run) -> None:
    """Run the scripts named, or all, and write each one's section as soon as it is measured."""
    known = scripts()
    if unknown := sorted(set(names) - set(known)):
        raise BadInput(f"There is no benchmark {', '.join(unknown)}; there are {', '.join(known)}.")
    wanted = [name for name in known if not names or name in names]
    run.identify("the benchmarks", list(names))
    run.identify("the processor", processor())
    for name in wanted:
        run.identify(f"the script {name}", hashlib.sha256(known[name].read_bytes()).hexdigest())
    for done, name in enumerate(wanted):
        run.progress(f"measuring · {name}", done, len(wanted), "benchmarks")
        section = run.unit(name, str, partial(measured, known[name]))
        kept = sections() | ({name: section} if section else {})
        parts = [f"<!-- {one} -->\n{text}" for one, text in sorted(kept.items()) if one in known]
        write_atomic(PAGE, "\n\n".join([HEAD.strip(), *parts]) + "\n")
    assert run.folder is not None
    write_atomic(run.folder / "protocol.json", json.dumps(plain(run.protocol()), indent=1))
    run.parts.clear()


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--out", default=HERE.parent / "headscan-results" / "benchmarks", help="folder of the series")
    parser.add_argument("--resume", action="store_true", help="go on with a series that was stopped")
    given = parser.parse_args()
    try:
        with progress_bar() as progress:
            command = shlex.join(["python", *sys.argv])
            with Run("benchmarks", out=given.out, resume=given.resume, progress=progress, command=command) as run:
                series(given.names, run)
    except BadInput as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
