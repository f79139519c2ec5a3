"""Run the benchmarks and write BENCHMARKS.md: one section a script, titled by its claim.

    python benchmarks/run.py [NAME ...]

Every script prints Markdown on standard output, measures its ratios in one run, and can be run alone. The sections of
scripts that are not named stay as they are, so a single claim can be measured again.
"""

from __future__ import annotations

import ast
import os
import platform
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parent / "BENCHMARKS.md"
HEAD = """# Benchmarks

Written by `make bench`. Each section is one script of `benchmarks/`, titled by its claim; its ratios are measured in one
run, so a busy machine slows both sides. Times are seconds of wall clock unless said otherwise.
"""


def title(script: Path) -> str:
    """The first line of the script's docstring."""
    return (ast.get_docstring(ast.parse(script.read_text())) or script.stem).splitlines()[0].rstrip(".")


def machine() -> str:
    """Processor, cores and load, in a line."""
    cpu = (
        re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
        if os.path.exists("/proc/cpuinfo")
        else None
    )
    name = cpu.group(1) if cpu else platform.processor()
    return f"{name}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start"


def sections() -> dict[str, str]:
    """The page's sections by script name, as they stand."""
    if not PAGE.exists():
        return {}
    found = re.split(r"<!-- (\w+) -->\n", PAGE.read_text())[1:]
    return dict(zip(found[::2], (text.strip() for text in found[1::2]), strict=True))


def main() -> None:
    """Run the scripts named, or all."""
    scripts = sorted(path for path in HERE.glob("*.py") if path.stem != "run" and not path.stem.startswith("_"))
    known = {path.stem for path in scripts}
    wanted = set(sys.argv[1:]) or known
    if wanted - known:
        sys.exit(f"There is no benchmark {', '.join(sorted(wanted - known))}; there are {', '.join(sorted(known))}.")
    kept = sections()
    for script in scripts:
        if script.stem not in wanted:
            continue
        print(f"{script.stem} ...", file=sys.stderr)
        about = machine()
        done = subprocess.run([sys.executable, script], capture_output=True, text=True)
        if done.returncode == 2:
            print(f"{script.name} is left out, it needs arguments: {done.stderr.splitlines()[-1]}", file=sys.stderr)
            continue
        if done.returncode:
            print(done.stderr, file=sys.stderr)
            sys.exit(f"{script.name} failed")
        when = datetime.now(UTC).strftime("%Y-%m-%d")
        kept[script.stem] = (
            f"## {title(script)}\n\n`python benchmarks/{script.name}`, {when}, {about}.\n\n{done.stdout.strip()}"
        )
        parts = [f"<!-- {name} -->\n{text}" for name, text in sorted(kept.items()) if name in known]
        PAGE.write_text("\n\n".join([HEAD.strip(), *parts]) + "\n")


if __name__ == "__main__":
    main()
