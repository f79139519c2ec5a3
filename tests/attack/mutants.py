"""Mutants of models, stores and texts: none may trace back, abort, hang, exceed its memory or write
outside its folder.

    python -m tests.attack.mutants [COUNT] [SEED] [FOLDER]
    python -m tests.attack.mutants again SEED NUMBER...

Mutant N of a seed is always the same. Each is a sound folder of tests/attack/mutations.py of which
one file (now and then, one name) is another, and is read by the command line in a fork of this
process, which has imported everything. FOLDER keeps how each ended (progress-SEED.jsonl), so that
the same command goes on where it was stopped, and of each fault its files and what was said;
`again` runs single ones once more.
"""

import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

os.environ |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}

import torch

from tests.attack import fuzz
from tests.attack.mutations import Base, bases, changed

LIMIT = 20  # seconds of processor time of a mutant
MEMORY = 2**30  # bytes beyond those of the process that has imported everything
TOGETHER = 20  # mutants of a fork, which costs as much as two of them
FOREVER = 300  # seconds after which a worker that ends no mutant is killed
READS = ["--max-tokens", "64", "--context", "16"]
WRITES = {
    "os.mkdir",
    "os.rename",
    "os.remove",
    "os.rmdir",
    "os.symlink",
    "os.link",
    "os.truncate",
    "os.chmod",
    "os.utime",
    "shutil.rmtree",
}
HERE = {"base", "sound", "tmp", "text.txt", "outside", "m", "s", "t", "r", "out"}
ALONE = {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "socket.connect"}


def mutant(
    kinds: dict[str, Base], seed: int, number: int
) -> tuple[str, dict[str, bytes | str], list[str]]:
    """Mutant `number` of a seed: its kind, its files (a string is where a link leads), and the
    command line that reads it.
    """
    draw = random.Random(f"{seed} {number}")
    [kind] = draw.choices(list(kinds), [often for _, _, often in kinds.values()])
    named, sound, _ = kinds[kind]
    files: dict[str, bytes | str] = dict(sound)
    name = draw.choice(list(sound))
    if draw.random() < 0.06:  # the file is gone, leads elsewhere, is another, or has another name
        other_name = draw.choice(list(sound))
        files[name] = draw.choice((b"", sound[other_name], "../outside", "/dev/zero", other_name))
        if draw.random() < 0.4:
            files[
                draw.choice((name + "x", "m/a.bin", "m/adapter_config.json", "t/c.txt", "s/c.npy"))
            ] = files.pop(name)
    else:
        files[name] = changed(name, sound[name], draw)
    scans = draw.random() < 0.1
    if kind.startswith("model"):
        arguments = [
            "scan" if scans else "states",
            named,
            "--text",
            "text.txt",
            *READS,
            "--sites",
            "block.*",
        ]
    elif kind == "result":
        return kind, files, ["figures", named, "out"]
    elif kind.startswith("store"):
        arguments = ["scan", named, *READS] if draw.random() < 0.3 else ["remedy", named]
    else:
        arguments = [
            "scan" if scans else "states",
            "sound",
            "--text",
            named,
            *READS,
            "--sites",
            "block.0",
        ]
        arguments += (
            ["--documents", draw.choice(("whole", "lines", "paragraphs", ". "))]
            if draw.random() < 0.5
            else []
        )
    return kind, files, [*arguments, "--out", "out"]


def lay(files: dict[str, bytes | str]) -> None:
    """The files in the folder in which we stand."""
    for name in ("m", "s", "t", "r", "out"):
        shutil.rmtree(name, ignore_errors=True)
    for name, content in files.items():
        Path(name).parent.mkdir(exist_ok=True, parents=True)
        if isinstance(content, bytes):
            Path(name).write_bytes(content)
        else:
            os.symlink(content, name)


class Watch:
    """Records what the process does that it must not, as Python tells: writing outside its folder,
    programs, connections.
    """

    def __init__(self) -> None:
        self.on = False
        self.seen = list[str]()
        self.own = (os.path.realpath("out"), os.path.realpath("tmp"))
        sys.addaudithook(self.hook)

    def owned(self, path: str) -> bool:
        return path == "/dev/null" or any(
            path == folder or path.startswith(f"{folder}/") for folder in self.own
        )

    def hook(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.on:
            return
        writes = event in WRITES
        if (
            event == "open"
            and isinstance(args[0], str | bytes | os.PathLike)
            and isinstance(args[2], int)
        ):
            writes = bool(args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC))
        # by the handle of a folder that is being removed
        inside = event in WRITES and args[-1] not in (-1, None)
        writes = writes and not inside and isinstance(args[0], str | os.PathLike)
        if event in ALONE or (writes and not self.owned(os.path.realpath(args[0]))):
            self.seen.append(f"{event} {args[0]!s}"[:200])


def judged(arguments: list[str], watch: Watch) -> tuple[int, str | None, str]:
    """Exit status, fault if any, and what was said, of the mutant that lies here."""
    watch.seen = []
    watch.on = True
    used = int(time.process_time())
    # where no Python runs that could stop
    resource.setrlimit(resource.RLIMIT_CPU, (used + 3 * LIMIT, resource.RLIM_INFINITY))
    status, output, _ = fuzz.run(arguments)
    watch.on = False
    fault = fuzz.faults_of(arguments, status, output) if status != 74 else None
    if status == 2 and (
        not output.strip().splitlines()[-1].startswith("headscan: ")
        or any(map(os.path.exists, ("out/result.json", "out/report.html")))
    ):
        fault = "no sentence, or something half-written"
    if any(ord(letter) < 32 and letter not in "\n\r\t" for letter in output):
        fault = "control characters"
    if {*os.listdir()} - HERE or Path("outside").read_text() != "{}":
        fault = "a file outside its folder"
    return status, fault or ("; ".join(watch.seen) or None), output


def work(kinds: dict[str, Base], seed: int, first: int, last: int, log: Path) -> None:
    """Run mutants in this process, which is a fork, and write how each ended."""
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, resource.RLIM_INFINITY))
    fuzz.LIMIT = LIMIT
    watch = Watch()
    began = time.monotonic()
    with log.open("a", encoding="utf-8") as lines:
        for number in range(first, last):
            kind, files, arguments = mutant(kinds, seed, number)
            lay(files)
            status, fault, output = judged(arguments, watch)
            seconds = time.monotonic() - began
            began = time.monotonic()
            row = {
                "number": number,
                "kind": kind,
                "status": status,
                "seconds": round(seconds, 3),
                "fault": fault,
                "said": output[-1500:],
            }
            lines.write(json.dumps(row) + "\n")
            lines.flush()


def ended(process: int, log: Path) -> int:
    """Wait for a worker, which is killed where it ends no mutant any more: its exit status."""
    while True:
        done, status = os.waitpid(process, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if log.exists() and time.time() - log.stat().st_mtime > FOREVER:
            os.kill(process, signal.SIGKILL)
        time.sleep(0.01)


@contextmanager
def ground() -> Iterator[dict[str, Base]]:
    """A folder to stand in, with all that mutants are made of, and every import done."""
    cwd = os.getcwd()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", "torch.quantize")
    with tempfile.TemporaryDirectory() as folder, mock.patch("plotly.io.write_images"):
        os.chdir(folder)
        try:
            for name in ("base", "tmp"):
                Path(name).mkdir()
            kinds = bases(Path(folder) / "base")
            shutil.copytree("base/gpt2", "sound")
            Path("text.txt").write_text(
                "Once upon a time there was a hen.\n\nAnd then another one.\n" * 9
            )
            Path("outside").write_text("{}")
            reading = ["sound", "--text", "text.txt", *READS, "--out"]
            for arguments in (
                ["scan", *reading, "tmp/scan"],
                ["states", *reading, "tmp/states"],
                ["remedy", "base/store/a.npy", "--out", "tmp/remedy"],
            ):
                status, output, _ = fuzz.run(arguments)
                assert status == 0, output
            saved = {
                f"r/{path.name}": path.read_bytes()
                for path in Path("tmp/scan").iterdir()
                if path.suffix != ".html"
            }
            assert fuzz.run(["figures", "tmp/scan", "tmp/figures"])[0] == 0
            yield kinds | {"result": ("r", saved, 4)}
        finally:
            os.chdir(cwd)


def attack(count: int, seed: int, keep: Path) -> list[dict[str, Any]]:
    """The mutants 0 to count − 1 of a seed, but for those that are done; all that went wrong."""
    keep = keep.absolute()
    keep.mkdir(parents=True, exist_ok=True)
    log = keep / f"progress-{seed}.jsonl"
    log.touch()

    def rows() -> list[dict[str, Any]]:
        return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()[:count]]

    with ground() as kinds:
        while (first := len(rows())) < count:
            process = os.fork()
            if not process:
                try:
                    os.environ["TMPDIR"] = tempfile.tempdir = os.path.realpath("tmp")
                    work(kinds, seed, first, min(first + TOGETHER, count), log)
                except BaseException:
                    traceback.print_exc()
                    os._exit(70)
                os._exit(0)
            if status := ended(process, log):
                number = len(rows())
                row = {
                    "number": number,
                    "kind": mutant(kinds, seed, number)[0],
                    "status": status,
                    "fault": f"the process ended with {status}",
                }
                with log.open("a", encoding="utf-8") as lines:
                    lines.write(json.dumps(row) + "\n")
        faults = [row for row in rows() if row["fault"]]
        for row in faults:
            _, files, arguments = mutant(kinds, seed, row["number"])
            lay(files)
            folder = keep / f"{seed}-{row['number']}"
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(
                next(name for name in "mstr" if os.path.exists(name)), folder, symlinks=True
            )
            folder.with_suffix(".json").write_text(json.dumps(row | {"words": arguments}, indent=1))
    return faults


def again(seed: int, numbers: Iterable[int]) -> Iterator[tuple[int, str, int, str | None, str]]:
    """Run the same mutants once more, in this process: number, command line, exit status, fault and
    what was said of each.
    """
    with ground() as kinds:
        watch = Watch()
        for number in numbers:
            _, files, arguments = mutant(kinds, seed, number)
            lay(files)
            yield number, " ".join(arguments), *judged(arguments, watch)


if __name__ == "__main__":
    if sys.argv[1:2] == ["again"]:
        for line in again(int(sys.argv[2]), map(int, sys.argv[3:])):
            print(*line, sep=": ")
        sys.exit()
    numbers = [int(word) for word in sys.argv[1:3]]
    count = numbers[0] if numbers else 20_000
    seed = numbers[1] if len(numbers) > 1 else 0
    folder = Path(sys.argv[3] if len(sys.argv) > 3 else "headscan-results/mutants")
    faults = attack(count, seed, folder)
    for row in faults:
        print(f"{row['number']} ({row['kind']}): {row['fault']}: {row.get('said', '')[-300:]}")
    print(f"{count} mutants of seed {seed}, {len(faults)} faults, kept in {folder}")
    sys.exit(bool(faults))
