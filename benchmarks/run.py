"""Run the benchmarks and write lab/docs/benchmarks.md: a section a script, titled by its claim.

    python benchmarks/run.py [NAME ...] [--resume]

The numbers of README that come from these sections follow (scripts/readme.py). Every script prints
Markdown on standard output, measures its ratios in one run, and can be run alone. The sections of
scripts that are not named stay as they are, so a single claim can be measured again. Scripts whose
numbers no clock decides run first, also beside other work; the others want a machine where nothing
else runs. A script that fails is named and left out. A series that was stopped goes on with
--resume: what was measured is kept, unless the script or the processor changed. What is written by
hand beneath a section, after a line `<!-- by hand -->`, stays.
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
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from headscan.cli.progress import progress_bar
from headscan.run import BadInput, Run, plain, write_atomic

HERE = Path(__file__).parent
PAGE = HERE.parent / "lab" / "docs" / "benchmarks.md"
BY_HAND = "<!-- by hand -->"
HOURS = frozenset(
    {
        "another_seed_turns_no_verdict",
        "intervals_cover",
        "the_monitor_names_ten_faults_and_leaves_healthy_runs_alone",
    }
)
"""Scripts of an hour or more, whose numbers no clock decides: they run where they are named."""
UNTIMED = frozenset(
    {
        "bits_lie_between_their_bounds_in_a_thousand_cells",
        "comparisons_cover",
        "exact_inversion_recovers_every_token",
        "faithfulness_intervals_cover",
        "how_many_untrained_twins_lie_within_the_null",
        "how_often_changes_finds_what_was_planted",
        "how_often_the_checkup_is_wrong",
        "the_checkup_on_what_it_has_not_seen",
        "intervals_of_tail_exponents_cover",
        "the_checkup_names_injected_faults",
        "the_monitor_names_collapses_and_leaves_healthy_runs_alone",
        "the_text_alone_forecasts_how_contexts_lie",
    }
)
"""Scripts whose numbers no clock decides."""
HEAD = """# Benchmarks: every measurement

Written by `make bench`, one section a script of `benchmarks/`; the claims that follow from them \
stand in [BENCHMARKS](../../BENCHMARKS.md).
Ratios are measured in one run, so a busy machine slows both sides.
"""


class Failed(Exception):
    """A script ended with an error."""


def scripts() -> dict[str, Path]:
    """Every benchmark by its name."""
    paths = sorted(HERE.glob("*.py"))
    return {
        path.stem: path for path in paths if path.stem != "run" and not path.stem.startswith("_")
    }


def title(script: Path) -> str:
    """The first line of the script's docstring."""
    return (
        (ast.get_docstring(ast.parse(script.read_text())) or script.stem)
        .splitlines()[0]
        .rstrip(".")
    )


def processor() -> str:
    """Its name and number of cores."""
    information = Path("/proc/cpuinfo")
    match = (
        re.search(r"model name\s*:\s*(.+)", information.read_text())
        if information.exists()
        else None
    )
    return f"{match.group(1) if match else platform.processor()}, {os.cpu_count()} cores"


def sections() -> dict[str, str]:
    """The page's sections by script name, as they stand."""
    if not PAGE.exists():
        return {}
    parts = re.split(r"<!-- (\w+) -->\n", PAGE.read_text())[1:]
    texts = [text.strip() for text in parts[1::2]]
    return dict(zip(parts[::2], texts, strict=True))


def measured(script: Path) -> str:
    """A script's section of the page; empty for one that needs arguments, or lacks a library or a
    model.
    """
    load = os.getloadavg()[0]
    begun = time.monotonic()
    done = subprocess.run([sys.executable, script], capture_output=True, text=True)
    if done.returncode == 2:
        print(f"{script.name} is left out: {done.stderr.splitlines()[-1]}", file=sys.stderr)
        return ""
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        raise Failed(script.name)
    took = time.monotonic() - begun
    took_words = f"{took:.0f} s" if took < 120 else f"{took / 60:.0f} min"
    about = (
        f"{datetime.now(UTC):%Y-%m-%d}, {processor()}, load {load:.1f} at the start, {took_words} "
        "in all"
    )
    return (
        f"## {title(script)}\n\n`python benchmarks/{script.name}`, "
        f"{about}.\n\n{done.stdout.strip()}"
    )


def series(names: Sequence[str], run: Run) -> None:
    """Run the scripts named, or all, and write each one's section as soon as it is measured."""
    known = scripts()
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise BadInput(f"There is no benchmark {', '.join(unknown)}; there are {', '.join(known)}.")
    # What takes hours is measured only where it is named; what no clock decides comes first.
    selected = [name for name in known if name in (names or known.keys() - HOURS)]
    selected.sort(key=lambda name: name not in UNTIMED)
    run.identify("the benchmarks", list(names))
    run.identify("the processor", processor())
    failed = []
    for done, name in enumerate(selected):
        run.progress(f"measuring · {name}", done, len(selected), "benchmarks")
        code = hashlib.sha256(known[name].read_bytes()).hexdigest()
        try:
            section = run.unit(f"{name}-{code[:12]}", str, partial(measured, known[name]))
        except Failed:
            failed.append(name)
            continue
        page_sections = sections()
        if section:
            _, mark, note = page_sections.get(name, "").partition(BY_HAND)
            page_sections[name] = f"{section}\n\n{mark}{note}".strip()
        parts = [
            f"<!-- {name} -->\n{text}"
            for name, text in sorted(page_sections.items())
            if name in known
        ]
        write_atomic(PAGE, "\n\n".join([HEAD.strip(), *parts]) + "\n")
        if PAGE.is_relative_to(HERE.parent / "lab"):  # the tests write elsewhere
            subprocess.run([sys.executable, HERE.parent / "scripts" / "readme.py"], check=True)
    if failed:
        raise BadInput(
            f"{', '.join(failed)} failed: mend what it says, and continue with the same command "
            "and --resume."
        )
    assert run.folder is not None
    write_atomic(run.folder / "protocol.json", json.dumps(plain(run.protocol()), indent=1))
    run.parts.clear()


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument(
        "--out",
        default=HERE.parent / "headscan-results" / "benchmarks",
        help="folder of the series",
    )
    parser.add_argument(
        "--resume", action="store_true", help="go on with a series that was stopped"
    )
    arguments = parser.parse_args()
    try:
        with progress_bar() as progress:
            command = shlex.join(["python", *sys.argv])
            with Run(
                "benchmarks",
                out=arguments.out,
                resume=arguments.resume,
                progress=progress,
                command=command,
            ) as run:
                series(arguments.names, run)
    except BadInput as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
