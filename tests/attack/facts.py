"""Runs that are stopped, and resumed after one fact was changed: each must refuse, or end with what
an undisturbed run with the changed fact ends with.

    python -m tests.attack.facts [PAIRS] [SEED] [VERB...]

A pair is a verb and a fact. The facts are found by the walk itself: every setting and input that
the run has stored, every file that it has opened, the model behind its link, the code, the number
of threads. So a new verb (with a line in tests/attack/kills.py) and a new fact take part at once.
"""

import os
import random
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from json import dumps, loads
from pathlib import Path
from typing import Any
from unittest import mock

from headscan.cli import BARE, verbs
from headscan.model.available import specimen_path
from headscan.run import Parts, Result
from headscan.run import run as run_module
from headscan.run.code import code_hashes
from tests.attack.kills import CASES, contents, story
from tests.command_line import Said, headscan

LINKED = ("gpt-vanilla-early", "gpt-headless-early", "gpt-vanilla")
REFUSALS = ("cannot be resumed", "There is nothing to resume", "is damaged")
RECORD = ".resume/identity.json"

Change = Callable[[], object]


class Stopped(KeyboardInterrupt):
    """Raised where a run is stopped."""


@dataclass
class Stand:
    """One verb with its inputs in a folder of its own, a stopped run, and the files it opened."""

    verb: str
    folder: Path
    opened: set[Path] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.inputs = self.folder / "inputs"
        self.out = self.folder / "out"

    def lay_out(self) -> None:
        """Write the inputs: texts, vectors, and models behind links."""
        shutil.rmtree(self.inputs, ignore_errors=True)
        (self.inputs / "sets" / "lambada").mkdir(parents=True)
        text = story(1)
        (self.inputs / "text.txt").write_text(text, encoding="utf-8")
        rows = [dumps({"text": part}) for part in text.split("\n\n")[:40]]
        (self.inputs / "sets" / "lambada" / "l.jsonl").write_text("\n".join(rows), encoding="utf-8")
        import numpy as np

        vectors = np.random.default_rng(0).standard_normal((4000, 32)).astype(np.float32)
        np.save(self.inputs / "vectors.npy", vectors)
        for name in LINKED:
            model = self.inputs / "step100" / name
            shutil.copytree(specimen_path(name), model)
            for path in model.iterdir():
                path.chmod(0o644)
            (self.inputs / name).symlink_to(model)

    def arguments(self) -> list[str]:
        """Return the command line, its inputs by their paths."""
        places = {
            "TEXT": self.inputs / "text.txt",
            "SETS": self.inputs / "sets",
            "VECTORS": self.inputs / "vectors.npy",
            "PROMPT": story(1)[:60],
        }
        places |= {name: self.inputs / name for name in LINKED}
        words = [str(places.get(word, word)) for word in shlex.split(CASES[self.verb])]
        return [*words, "--out", str(self.out)]

    def run(self, *more: str) -> Said:
        """Run the verb to its end."""
        return headscan(*self.arguments(), *more)

    def stop(self) -> bool:
        """Run until something is stored, or until the end; return whether a run is left."""
        self.lay_out()
        with stopped_after_storing(), self._watched():
            self.run()
        return (self.out / RECORD).exists()

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Note which of the inputs are opened."""
        inputs = os.fspath(self.inputs)

        def note(event: str, arguments: tuple[Any, ...]) -> None:
            path = arguments[0] if event == "open" and arguments else None
            if WATCHING and isinstance(path, str) and path.startswith(inputs):
                self.opened.add(Path(path).resolve())

        sys.addaudithook(note)
        WATCHING.append(True)
        try:
            yield
        finally:
            WATCHING.clear()

    def record(self) -> dict[str, dict[str, Any]]:
        """Return what the stopped run stored of its facts."""
        stored: dict[str, dict[str, Any]] = loads((self.out / RECORD).read_text(encoding="utf-8"))
        return stored


WATCHING: list[bool] = []


@contextmanager
def stopped_after_storing() -> Iterator[None]:
    """Stop a run when it has stored something, or when it saves its result."""
    write = Parts.write

    def write_and_stop(parts: Parts, *positional: Any, **named: Any) -> None:
        write(parts, *positional, **named)
        raise Stopped

    def stop(*_: Any) -> None:
        raise Stopped

    with (
        mock.patch.object(Parts, "FIRST", 0.0),
        mock.patch.object(Parts, "SHARE", 1e9),
        mock.patch.object(Parts, "write", write_and_stop),
        mock.patch.object(Result, "saved", stop),
    ):
        yield


# ---- changes of a fact: each yields what is changed, and whether a resume may accept it and end
# with what an undisturbed run ends with


@contextmanager
def stored_fact(stand: Stand, draw: random.Random) -> Iterator[tuple[str, bool]]:
    """One stored fact has another value, is gone, or stands beside one that nobody knows.

    The last input alone may be gone: a run may have been stopped before it came to it.
    """
    record = stand.record()
    group = draw.choice([name for name, facts in record.items() if facts])
    fact = draw.choice(sorted(record[group]))
    kind = draw.choice(("changed", "removed", "added"))
    if kind == "added":
        record[group][f"{fact} 9"] = 1
    elif kind == "removed":
        del record[group][fact]
    else:
        record[group][fact] = ["another", record[group][fact]]
    is_last_input = group == "inputs" and fact == list(stand.record()["inputs"])[-1]
    (stand.out / RECORD).write_text(dumps(record), encoding="utf-8")
    yield f"{fact} {kind} ({group})", kind == "removed" and is_last_input


@contextmanager
def input_file(stand: Stand, draw: random.Random) -> Iterator[tuple[str, bool]]:
    """One letter or bit of a file that the run has read is another."""
    path = draw.choice(sorted(stand.opened))
    content = path.read_bytes()
    data = bytearray(content)
    # Most texts are read at their beginning only, where a change is to be refused.
    position = draw.randrange(len(data) if draw.random() < 0.3 else min(len(data), 2000))
    letter = data[position : position + 1].isalpha()
    data[position] = data[position] ^ 0x20 if letter else data[position] ^ 1
    path.write_bytes(data)
    try:
        yield f"byte {position} of {path.relative_to(stand.inputs)}", True
    finally:
        path.write_bytes(content)


@contextmanager
def link(stand: Stand, draw: random.Random) -> Iterator[tuple[str, bool]]:
    """The model's link leads to another model of its shape, whose folder has the same name."""
    used = [name for name in LINKED if str(stand.inputs / name) in stand.arguments()]
    name = draw.choice(used)
    copy = stand.inputs / "step200" / name
    shutil.copytree(stand.inputs / "step100" / name, copy)
    weights = copy / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-draw.randrange(1, 4000)] ^= 1
    weights.write_bytes(data)
    place = stand.inputs / name
    place.unlink()
    place.symlink_to(copy)
    try:
        reads_weights = any(path.name == weights.name for path in stand.opened)
        yield f"the link {name}", not reads_weights  # ntp reads a tokenizer alone
    finally:
        place.unlink()
        place.symlink_to(stand.inputs / "step100" / name)
        shutil.rmtree(stand.inputs / "step200")


@contextmanager
def code(_stand: Stand, draw: random.Random) -> Iterator[tuple[str, bool]]:
    """A file of headscan or of a plug-in is another one."""
    hashes = code_hashes()
    package = draw.choice(sorted(hashes))
    changed = hashes | {package: "another"}
    with mock.patch.object(run_module, "code_hashes", return_value=changed):
        yield f"the code of {package}", False


@contextmanager
def threads(_stand: Stand, _draw: random.Random) -> Iterator[tuple[str, bool]]:
    """torch uses another number of threads."""
    import torch

    number = torch.get_num_threads()
    torch.set_num_threads(number + 1)
    try:
        yield "the number of threads", False
    finally:
        torch.set_num_threads(number)


CHANGES = (stored_fact, stored_fact, input_file, input_file, link, code, threads)
FAULTS = (1, 70, 124)


def applicable(stand: Stand) -> list[Any]:
    """Return the changes that a verb's inputs allow."""
    linked = any(str(stand.inputs / name) in stand.arguments() for name in LINKED)
    return [
        change
        for change in CHANGES
        if (change is not link or linked) and (change is not input_file or stand.opened)
    ]


def judged(stand: Stand, change: Any, draw: random.Random) -> tuple[str, str | None]:
    """Resume a copy of the stopped run under one change; return the change, and its fault."""
    kept = stand.folder / "kept"
    shutil.copytree(stand.out, kept, symlinks=True)
    try:
        with change(stand, draw) as (what, may_be_accepted):
            ended = stand.run("--resume")
            if ended.status == 2 and "Traceback" not in ended.stderr:
                return what, None
            if ended.status != 0:
                return what, f"exit {ended.status}: {ended.stderr[-600:]}"
            if not may_be_accepted:
                return what, "it was accepted"
            resumed = contents(stand.out)
            shutil.rmtree(stand.out)
            fresh = stand.run()
            if fresh.status == 0 and contents(stand.out) == resumed:
                return what, None
            return what, "the result is neither a refusal nor that of the changed input"
    finally:
        shutil.rmtree(stand.out, ignore_errors=True)
        kept.rename(stand.out)


def attack(pairs: int, seed: int, names: list[str]) -> list[str]:
    """Try so many pairs of a verb and a changed fact; return the faults."""
    draw = random.Random(seed)
    faults = []
    with tempfile.TemporaryDirectory() as folder:
        for number, name in enumerate(names):
            count = (pairs + number) // len(names)
            began = time.monotonic()
            stand = Stand(name, Path(folder) / name)
            stand.folder.mkdir()
            if not stand.stop():
                faults.append(f"{name}: nothing was left of a stopped run")
                continue
            failed = 0
            for _ in range(count):
                what, fault = judged(stand, draw.choice(applicable(stand)), draw)
                if fault is not None:
                    failed += 1
                    faults.append(f"{name}: {what}: {fault}")
                    print(faults[-1], flush=True)
            seconds = time.monotonic() - began
            print(f"| {name} | {count} | {failed} | {seconds:.0f} s |", flush=True)
            shutil.rmtree(stand.folder)
    return faults


def attacked_verbs() -> list[str]:
    """Return every verb that makes a result."""
    return [name for name in verbs() if name not in BARE]


if __name__ == "__main__":
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    found = attack(
        wanted, int(sys.argv[2]) if len(sys.argv) > 2 else 0, sys.argv[3:] or attacked_verbs()
    )
    print(f"{wanted} pairs, {len(found)} faults")
    sys.exit(bool(found))
