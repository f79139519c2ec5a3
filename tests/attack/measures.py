"""Each measure and each probe of a scan, alone and all together, killed at ten places: a resumed
scan ends as an undisturbed one.

    python -m tests.attack.measures [NAME...]

Every scan is a fork of this process, in which the model is loaded once; it kills itself by SIGKILL
when it has read one tenth of its text, two tenths, and so on, and has stored its state at every
batch. Then it is resumed.
"""

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}

import torch

from headscan import Lens, scan
from headscan.measures import MEASURES, PROBES
from headscan.run.parts import Parts
from tests.attack.kills import contents, difference, story
from tests.forked import fork, status_of

PLACES = 10
BATCHES = 20
BATCH = 2
CONTEXT = 16


def ended(
    lens: Lens, text: Path, out: Path, name: str, *, resume: bool = False, point: int | None = None
) -> int:
    """The exit status of a scan in a fork, which kills itself at a tenth of its text where `place`
    says which.
    """
    read = None if point is None else (point + 1) * BATCHES // PLACES * BATCH * CONTEXT

    def progress(stage: str, done: int, total: int | None, unit: str) -> None:
        if read is not None and unit == "tokens" and done >= read:
            os.kill(os.getpid(), signal.SIGKILL)

    def work() -> None:
        Parts.FIRST = 0.0
        Parts.SHARE = 1e9
        scan(
            lens,
            text,
            documents="paragraphs",
            context=CONTEXT,
            batch=BATCH,
            max_tokens=BATCHES * BATCH * CONTEXT,
            sample=20,
            sites="block.0,block.3",
            measures=name,
            out=out,
            resume=resume,
            progress=progress,
        )

    return status_of(fork(work, out.with_suffix(".said")))


def attack(names: list[str], announce: Callable[[str], None] = print) -> tuple[int, list[str]]:
    """Return how many scans were killed and resumed, and what went wrong."""
    torch.set_num_threads(1)
    lens = Lens.load("gpt-vanilla-early")
    done = 0
    wrong = list[str]()
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text.txt"
        text.write_text(story(1), encoding="utf-8")
        for name in names:
            began = time.monotonic()
            undisturbed = Path(folder) / "whole"
            assert ended(lens, text, undisturbed, name) == 0, undisturbed.with_suffix(
                ".said"
            ).read_text()[-2000:]
            for point in range(PLACES):
                out = Path(folder) / "out"
                killed = ended(lens, text, out, name, point=point)
                status = ended(lens, text, out, name, resume=True)
                if (killed, status) == (-signal.SIGKILL, 0):
                    fault = difference(contents(out), contents(undisturbed))
                else:
                    printed = out.with_suffix(".said").read_text()
                    fault = f"{killed}, {status}: {printed[-300:]}"
                if fault:
                    wrong.append(f"{name}, place {point}: {fault}")
                    announce(wrong[-1])
                done += 1
                shutil.rmtree(out, ignore_errors=True)
            shutil.rmtree(undisturbed)
            announce(
                f"{name}: {PLACES} kills, {time.monotonic() - began:.0f} s, {len(wrong)} faults "
                "up to here"
            )
    return done, wrong


if __name__ == "__main__":
    scans, faults = attack(sys.argv[1:] or ["all", "expensive", *MEASURES, *PROBES])
    print(f"{scans} scans killed and resumed, {len(faults)} faults")
    sys.exit(bool(faults))
