"""How long each verb takes on a model of 1.5 billion parameters.

    python benchmarks/how_long_each_verb_takes_on_a_real_model.py all | LINE ... [--again]

Each line of the table is one command, run alone in a process of its own: its seconds and peak
memory, and what came out. What was measured is kept (headscan-results/real), so that a series goes
on where it stopped; --again measures the lines named once more. The models are those of `make real`
(HEADSCAN_REAL), the texts HEADSCAN_TEXTS.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from run import HEAD, PAGE, processor, sections, title

from headscan.run import write_atomic

HERE = Path(__file__)
REAL = Path(os.environ.get("HEADSCAN_REAL", Path.home() / ".cache" / "headscan" / "real"))
TEXTS = Path(os.environ.get("HEADSCAN_TEXTS", HERE.parents[2] / "shared" / "assets" / "text"))
KEPT = HERE.parents[1] / "headscan-results" / "real"
LIMIT = 1200  # seconds after which a command is stopped: twice the claim
PROMPT = "The capital of Italy is Rome, and the capital of France is"


@dataclass(frozen=True)
class Line:
    """One command: what follows `headscan`, and what its result.json says in a few words."""

    command: list[str]
    summary: Callable[[Any], str]


@dataclass(frozen=True)
class Measured:
    """The time and memory that one run took. `load` is the machine's at the start: beyond a few
    tenths the seconds are of a busy machine.
    """

    seconds: float
    gigabytes: float
    found: str  # a name in the stored files
    date: str
    load: float
    threads: str
    versions: str
    processor: float | None = None  # of all its threads: tells a busy machine from slow work


def number(value: float | None) -> str:
    """Three digits, or "none"."""
    return "none" if value is None else f"{value:.3g}"


def scanned(document: Any) -> str:
    """Tell the cosine at both ends of the blocks."""
    rows = {row["site"]: row for row in document["sites"]}
    blocks = [name for name in rows if name.startswith("block.")]
    cosines = ", ".join(
        f"{name} {number(rows[name]['average_cosine'])}" for name in (blocks[2], blocks[-1])
    )
    return f"{len(rows)} sites; average cosine {cosines}"


def attributed(document: Any) -> str:
    """Tell the heaviest token, and its faithfulness beside chance."""
    best = max(range(len(document["scores"])), key=lambda i: abs(document["scores"][i]))
    deletion = document["faithfulness"]["deletion"]["area"]
    random = document["faithfulness"]["random"]["deletion"]
    step = document["steps"][0]
    prediction = f"predicts '{step['token'].strip()}' ({number(step['probability'])})"
    if document["target"]["kind"] == "sentence":
        prediction = "its sentence vector turns most"
    token = document["tokens"][best]
    return f"{prediction} by '{token}'; deletion {number(deletion)}, random {number(random)}"


def flowed(document: Any) -> str:
    """Tell how many earlier tokens an output shows."""
    part = document["parts"][0]
    last = part["sites"][-1]
    tried = "the vocabulary" if part["exhaustive"] else f"{part['candidates']} candidates"
    return f"{last['site']}: tells {last['recoverable_of_earlier']:.0%} of earlier tokens, {tried}"


def channelled(document: Any) -> str:
    """Tell the size of the code book, and what was left out."""
    part = document["parts"][0]
    median = number(part["distances"]["median"])
    left = len(part["left_out"])
    return (
        f"{part['vocabulary']} code words, median distance {median} spreads; {left} things left out"
    )


def solved(document: Any) -> str:
    """Tell the gap that was proved."""
    solution = document["solution"]
    certified = (
        "no solution, a proxy" if solution is None else f"certified gap {number(solution['gap'])}"
    )
    bound = number(document["entropy_bound"])
    return f"{document['contexts']:,} contexts, bound {bound} nats, {certified}"


def inverted(document: Any) -> str:
    """Tell how many tokens were recovered, and the verdict."""
    return f"{document['token_accuracy']:.0%} of the tokens; {document['prompts'][0]['verdict']}"


def leaked(document: Any) -> str:
    """Tell how many rows there are, and the first."""
    row = document["rows"][0]
    return f"{len(document['rows'])} rows; clean {row['site']}: {number(row['text_accuracy'])}"


def recovered(document: Any) -> str:
    """Tell the perplexity with the head that was made."""
    return f"perplexity {number(document['after']['perplexity'])} by '{document['recovery']}'"


def stored(document: Any) -> str:
    """Tell what was written."""
    gigabytes = document["bytes"] / 1e9
    return f"{len(document['sites'])} sites of {document['tokens']:,} tokens, {gigabytes:.2g} GB"


def evaluated(document: Any) -> str:
    """Tell the first scores."""
    return ", ".join(
        f"{row['task']} {row['number']} {number(row['value'])}" for row in document["scores"][:3]
    )


def lines() -> dict[str, Line]:
    """Every line by its name, in the table's order."""
    qwen = str(REAL / "qwen")
    mpnet = str(REAL / "all-mpnet-base-v2")
    wikitext = str(TEXTS / "wikitext-2" / "test.txt")
    small = str(KEPT / "60kB.txt")
    prompt = ["--prompt", PROMPT]
    return {
        "scan": Line(["scan", qwen, "--text", wikitext, "--max-tokens", "4096"], scanned),
        "attribute": Line(["attribute", qwen, *prompt], attributed),
        "flow": Line(["flow", qwen, *prompt], flowed),
        "flow-block.2": Line(["flow", qwen, *prompt, "--at", "block.2"], flowed),
        "channel": Line(["channel", qwen, *prompt], channelled),
        "privacy": Line(["privacy", qwen, "--text", small], leaked),
        "ntp": Line(["ntp", small, "--tokenizer", qwen, "--order", "1"], solved),
        "ntp-order-3": Line(["ntp", small, "--tokenizer", qwen, "--order", "3"], solved),
        "invert": Line(["invert", qwen, *prompt, "--at", "block.2"], inverted),
        "recover": Line(["recover", qwen, "--text", small], recovered),
        "evaluate": Line(["evaluate", qwen, "--text", str(TEXTS)], evaluated),
        "states": Line(["states", qwen, "--text", small, "--max-tokens", "4096"], stored),
        "mpnet-scan": Line(["scan", mpnet, "--text", wikitext, "--max-tokens", "16384"], scanned),
        "mpnet-attribute": Line(["attribute", mpnet, *prompt], attributed),
        "mpnet-invert": Line(
            [
                "invert",
                mpnet,
                "--prompt",
                "The cat sat on the mat.",
                "--at",
                "block.0",
                "--method",
                "joint",
            ],
            inverted,
        ),
        "mpnet-evaluate": Line(
            ["evaluate", mpnet, "--text", str(TEXTS), "--tasks", "stsb"], evaluated
        ),
    }


def measure(name: str, line: Line) -> Measured:
    """Run one command in a process of its own."""
    out = KEPT / name
    command = [sys.executable, "-m", "headscan", *line.command, "--out", str(out), "--overwrite"]
    load = os.getloadavg()[0]
    start = time.perf_counter()
    with open(KEPT / f"{name}.log", "w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        usage = None
        while usage is None:
            pid, status, ended = os.wait4(process.pid, os.WNOHANG)
            usage = ended if pid else None
            if usage is None and time.perf_counter() - start > LIMIT:
                process.kill()
                _, status, usage = os.wait4(process.pid, 0)
            if usage is None:
                time.sleep(0.2)
    seconds = time.perf_counter() - start
    code = os.waitstatus_to_exitcode(status)
    if code:
        last = (KEPT / f"{name}.log").read_text().strip().splitlines()[-1:]
        summary = f"stopped after {LIMIT} s" if code == -9 else f"failed: {' '.join(last)}"
    else:
        summary = line.summary(json.loads((out / "result.json").read_text()))
    versions = ", ".join(
        f"{package} {version(package)}" for package in ("headscan", "torch", "transformers")
    )
    threads = os.environ.get("OMP_NUM_THREADS", str(os.cpu_count()))
    date = f"{datetime.now(UTC):%Y-%m-%d}"
    busy = usage.ru_utime + usage.ru_stime
    return Measured(seconds, usage.ru_maxrss / 2**20, summary, date, load, threads, versions, busy)


def shown_word(word: str) -> str:
    """Return a word of a command as the table shows it: quoted, or the name of the file alone."""
    if " " in word:
        return f"'{word}'"
    return Path(word).name if "/" in word else word


def table(measurements: dict[str, Measured]) -> str:
    """The section of lab/docs/benchmarks.md."""
    all_lines = lines()
    rows = [
        "| line | command | seconds | processor | peak memory, GiB | what came out | date | load "
        "at the start | threads |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, line in all_lines.items():
        measurement = measurements.get(name)
        if measurement is None:
            continue
        command = " ".join(shown_word(word) for word in line.command)
        busy = " (busy)" if measurement.load > 1 else ""
        summary = measurement.found.replace("|", "\\|")
        processor_seconds = (
            "" if measurement.processor is None else str(round(measurement.processor))
        )
        rows.append(
            f"| {name} | `{command}` | {measurement.seconds:.0f}{busy} | "
            f"{processor_seconds} | {measurement.gigabytes:.1f} | {summary} | "
            f"{measurement.date} | {measurement.load:.1f} | {measurement.threads} |"
        )
    missing = [name for name in all_lines if name not in measurements]
    last = f"\n\nNot measured yet: {', '.join(missing)}." if missing else ""
    about = " · ".join(sorted({measurement.versions for measurement in measurements.values()}))
    return (
        f"## {title(HERE)}\n\n`make real`, {processor()}, {platform.system()}; {about}. Defaults "
        'everywhere; "busy" marks seconds of a machine that had other work, which are too many; '
        "processor seconds are those of all threads. 60kB.txt is the beginning of wikitext-2's "
        "test set. Where all other work was stopped meanwhile the load is given as 0: the system "
        "goes on counting stopped processes.\n\n" + "\n".join(rows) + last
    )


def main() -> None:
    """Measure the lines named, and write the page after each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names",
        nargs="+",
        metavar="LINE",
        choices=["all", *lines()],
        help=", ".join(["all", *lines()]),
    )
    parser.add_argument("--again", action="store_true", help="measure once more what was measured")
    arguments = parser.parse_args()
    if not REAL.is_dir() or not TEXTS.is_dir():
        print(f"{REAL} or {TEXTS} is absent: NOTHING is measured on real models", file=sys.stderr)
        return
    KEPT.mkdir(parents=True, exist_ok=True)
    (KEPT / "60kB.txt").write_bytes((TEXTS / "wikitext-2" / "test.txt").read_bytes()[:60_000])
    measurements = {}
    for name in lines():
        path = KEPT / f"{name}.json"
        if path.is_file():
            measurements[name] = Measured(**json.loads(path.read_text()))
    for name, line in lines().items():
        if "all" not in arguments.names and name not in arguments.names:
            continue
        if name in measurements and not arguments.again:
            continue
        print(f"{name}: headscan {' '.join(line.command)}", file=sys.stderr, flush=True)
        measurements[name] = measure(name, line)
        write_atomic(KEPT / f"{name}.json", json.dumps(asdict(measurements[name]), indent=1))
        print(
            f"{name}: {measurements[name].seconds:.0f} s, {measurements[name].gigabytes:.1f} GiB; "
            f"{measurements[name].found}",
            file=sys.stderr,
        )
    other_sections = {name: text for name, text in sections().items() if name != HERE.stem}
    parts = [
        f"<!-- {name} -->\n{text}"
        for name, text in sorted((other_sections | {HERE.stem: table(measurements)}).items())
    ]
    write_atomic(PAGE, "\n\n".join([HEAD.strip(), *parts]) + "\n")


if __name__ == "__main__":
    main()
