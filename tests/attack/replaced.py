"""Results that are replaced again and again by runs that are killed, while others read them.

    python -m tests.attack.replaced [KILLS] [SEED]

A scan with --overwrite is killed by SIGKILL at a drawn moment. What is in the folder then is the
old result or the new one, whole: its arrays, its page and its JSON are those of one run. A run
without --overwrite is refused, and --resume ends as an undisturbed run.
"""

import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

import headscan
from headscan.run import BadInput
from tests.attack.kills import command
from tests.command_line import headscan as in_this_process
from tests.tiny import save_tiny

ARGUMENTS = "scan {model} --text stories --context 16 --max-tokens 1600 --sites block.*"
MODELS = ("model-first", "model-second")


def words(number: int, out: Path, *more: str) -> list[str]:
    """Return the command line of the run of this number; each has a model of its own."""
    model = out.parent / MODELS[number % len(MODELS)]
    return [*ARGUMENTS.format(model=model).split(), "--out", str(out), *more]


def start(arguments: list[str]) -> int:
    """Begin a run in a fork; return the process's number."""
    process = os.fork()
    if not process:
        try:
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 1)
            os.dup2(quiet, 2)
            command(arguments)
        finally:
            os._exit(70)
    return process


def watched(process: int, out: Path, seconds: float) -> tuple[int, list[str]]:
    """Read the result until a run is killed or has ended; return the reads and their faults."""
    limit = time.monotonic() + seconds
    reads = 0
    faults = []
    while time.monotonic() < limit:
        if os.waitpid(process, os.WNOHANG) != (0, 0):
            return reads, faults
        try:
            faults += faults_of(out)
            reads += 1
        except BadInput as refusal:
            faults.append(f"while it was replaced: {refusal}")
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return reads, faults


def faults_of(out: Path) -> list[str]:
    """Return what is wrong with a saved result; `load` compares its files with their hashes."""
    result = headscan.load(out)
    model = result.models[0].name
    return [] if model in (result.protocol.command or "") else [f"{model} in another's result"]


def attack(kills: int, seed: int) -> list[str]:
    """Kill so many overwriting runs; return the faults."""
    draw = random.Random(seed)
    faults = []
    total = 0
    with tempfile.TemporaryDirectory() as folder:
        for seed_of_model, name in enumerate(MODELS):
            save_tiny(Path(folder) / name, seed_of_model)
        out = Path(folder) / "out"
        began = time.monotonic()
        os.waitpid(start(words(0, out)), 0)
        length = time.monotonic() - began
        for number in range(1, kills + 1):
            process = start(words(number, out, "--overwrite"))
            reads, wrong = watched(process, out, draw.uniform(0.5, 1.1) * length)
            total += reads
            faults += wrong + faults_of(out)
            refused = in_this_process(*words(number + 1, out))
            if refused.status != 2 or "holds a finished result" not in refused.stderr:
                faults.append(f"kill {number}: not protected: {refused.stderr[-300:]}")
            if (out / ".resume").exists() and draw.random() < 0.5:
                ended = in_this_process(*words(number, out, "--resume"))
                if ended.status != 0:
                    faults.append(f"kill {number}: the resume ended with {ended.stderr[-300:]}")
            if number % 10 == 0:
                print(f"{number} kills, {total} reads, {len(faults)} faults", flush=True)
    print(f"{kills} kills, {total} reads, {len(faults)} faults")
    return faults


if __name__ == "__main__":
    found = attack(
        int(sys.argv[1]) if len(sys.argv) > 1 else 50,
        int(sys.argv[2]) if len(sys.argv) > 2 else 0,
    )
    print("\n".join(found))
    sys.exit(bool(found))
