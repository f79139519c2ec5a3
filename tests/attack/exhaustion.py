"""Verbs whose memory runs out at a drawn call of a module: each goes on, or ends in one sentence.

    python -m tests.attack.exhaustion [TRIES] [SEED] [VERB...]

Memory runs out once, or at that call and at every later one, on the host or on a GPU (emulated). A
verb ends with status 0 and the result of an undisturbed run's form, or with status 74.
"""

import random
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from tests.attack.facts import Stand, attacked_verbs

WITHOUT_MODULES = ("reproduce", "tournament")
"""Verbs whose models run in other processes or are tiny."""


class Calls:
    """Counts the calls of modules, and raises at one of them."""

    def __init__(self) -> None:
        self.count = 0
        self.fails_at: int | None = None
        self.stays = False
        self.error: type[BaseException] = MemoryError

    def step(self) -> None:
        """Count a call."""
        self.count += 1
        if self.fails_at is None or self.count < self.fails_at:
            return
        if self.count == self.fails_at or self.stays:
            raise self.error("CUDA out of memory. Tried to allocate 2.00 GiB.")


@contextmanager
def counted(calls: Calls) -> Iterator[None]:
    """Count the calls of all modules in this context."""
    call = torch.nn.Module.__call__

    def counting(module: torch.nn.Module, *positional: Any, **named: Any) -> Any:
        calls.step()
        return call(module, *positional, **named)

    with mock.patch.object(torch.nn.Module, "__call__", counting):
        yield


def fault_of(stand: Stand, calls: Calls) -> str | None:
    """Run the verb while memory runs out; return what is wrong with its end."""
    with counted(calls):
        ended = stand.run()
    shutil.rmtree(stand.out, ignore_errors=True)
    if "Traceback" in ended.stderr or ended.status not in (0, 2, 74):
        return f"exit {ended.status}: {ended.stderr[-600:]}"
    last = (ended.stderr.strip().splitlines() or [""])[-1]
    if ended.status == 74 and "Memory ran out" not in last:
        return f"no word of memory: {last}"
    if ended.status == 2:
        return f"the input is blamed: {last}"
    return None


def attack(tries: int, seed: int, names: list[str]) -> list[str]:
    """Let memory run out so many times in each verb; return the faults."""
    draw = random.Random(seed)
    faults = []
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            stand = Stand(name, Path(folder) / name)
            stand.folder.mkdir()
            stand.lay_out()
            undisturbed = Calls()
            problem = fault_of(stand, undisturbed)
            if problem is not None or not undisturbed.count:
                print(f"| {name} | no call of a module | {problem} |")
                continue
            for _ in range(tries):
                calls = Calls()
                calls.fails_at = draw.randint(1, undisturbed.count)
                calls.stays = draw.random() < 0.3
                calls.error = draw.choice((MemoryError, torch.OutOfMemoryError))
                problem = fault_of(stand, calls)
                if problem is not None:
                    always = "and always after" if calls.stays else "once"
                    faults.append(f"{name}: call {calls.fails_at}, {always}: {problem}")
                    print(faults[-1], flush=True)
            print(f"| {name} | {undisturbed.count} calls | {tries} tries |", flush=True)
            shutil.rmtree(stand.folder)
    return faults


if __name__ == "__main__":
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    verbs = [name for name in attacked_verbs() if name not in WITHOUT_MODULES]
    found = attack(wanted, int(sys.argv[2]) if len(sys.argv) > 2 else 0, sys.argv[3:] or verbs)
    print(f"{len(found)} faults")
    sys.exit(bool(found))
