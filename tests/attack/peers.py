"""A scan of two processes, one of which is killed: the other says so and ends within a minute, and
--resume goes on.

    python -m tests.attack.peers [KILLS] [SEED]

Both are forks that find what `torchrun` tells its processes in their environment. A process drawn
at random is killed at a moment drawn from the seconds of an undisturbed run; then both are resumed,
and what they end with is held to that run's.
"""

import os
import random
import signal
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from tests.attack.kills import command, contents, difference, story
from tests.forked import start, status_of

WORDS = (
    "scan gpt-vanilla-early --documents paragraphs --context 16 --batch 4 --sites block.0,block.3 "
    "--sample 20"
)
LIMIT = 60  # seconds in which the other must have ended
ENDED = "the run had ended: not counted"
END = 90  # more, and it is killed: it hangs


def run(out: Path, text: Path, *args: str) -> list[int]:
    """Two processes that have begun; their numbers."""
    arguments = [
        *WORDS.split(),
        "--text",
        str(text),
        "--max-tokens",
        "3200",
        "--out",
        str(out),
        *args,
    ]
    return start(partial(command, arguments), 2, out.parent / "said")


def wait(process: int, began: float) -> tuple[int, float]:
    """The exit status of a process, and after how many seconds it had ended."""
    ended, status = os.waitpid(process, os.WNOHANG)
    while not ended:
        if time.monotonic() - began > END:
            os.kill(process, signal.SIGKILL)
        time.sleep(0.01)
        ended, status = os.waitpid(process, os.WNOHANG)
    return os.waitstatus_to_exitcode(status), time.monotonic() - began


def kill(folder: Path, victim: int, after: float, text: Path) -> tuple[float, str, str]:
    """Seconds from a kill to the other's end, what the other said, and what is wrong, if anything;
    the run is then resumed.
    """
    processes = run(folder / "out", text)
    time.sleep(after)
    os.kill(processes[victim], signal.SIGKILL)
    began = time.monotonic()
    killed = status_of(processes[victim]) == -signal.SIGKILL
    status, seconds = wait(processes[1 - victim], began)
    last_line = (folder / f"said.{1 - victim}").read_text().strip().splitlines()[-1:]
    if not killed or (folder / "out" / "result.json").exists():
        return seconds, ENDED, ""
    # A process whose part was done when the first, which alone writes the result, died has nothing
    # to say; the resume shows it.
    in_order = status == 0 and not last_line and victim == 0
    died = status == 74 and "has died" in "".join(last_line)
    wrong = "" if seconds < LIMIT and (died or in_order) else f"exit {status} after {seconds:.0f} s"
    resume = ["--resume"] if (folder / "out" / ".resume" / "identity.json").exists() else []
    again = [status_of(process) for process in run(folder / "out", text, *resume)]
    return (
        seconds,
        "".join(last_line),
        wrong
        or (
            "" if again == [0, 0] else f"resumed: {again}: {(folder / 'said.0').read_text()[-300:]}"
        ),
    )


def attack(kills: int, seed: int, folder: Path) -> list[str]:
    """All that went wrong in so many kills."""
    import torch
    import transformers.models.auto.modeling_auto  # noqa: F401 (once, here, and not in every fork)

    import headscan

    headscan.scan  # noqa: B018 (imports what the verb needs)
    torch.set_num_threads(1)
    text = folder / "text.txt"
    draw = random.Random(seed)
    faults = list[str]()
    text.write_text(story(1), encoding="utf-8")
    (folder / "whole").mkdir()
    began = time.monotonic()
    statuses = [status_of(process) for process in run(folder / "whole" / "out", text)]
    length = time.monotonic() - began
    expected = contents(folder / "whole" / "out")
    assert statuses == [0, 0], (folder / "whole" / "said.0").read_text()
    done = 0
    while done < kills:
        run_folder = Path(tempfile.mkdtemp(dir=folder))
        victim = draw.randrange(2)
        seconds_before = draw.random() * length
        seconds, last_line, wrong = kill(run_folder, victim, seconds_before, text)
        done += last_line != ENDED
        if not wrong:
            different = difference(contents(run_folder / "out"), expected)
            wrong = f"another result: {different}" if different else ""
        print(
            f"process {victim} killed after {seconds_before:.2f} of {length:.2f} s: ended "
            f"{seconds:.2f} s later: {last_line} {wrong}",
            flush=True,
        )
        if wrong:
            faults.append(wrong)
    return faults


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        numbers = [int(word) for word in sys.argv[1:3]]
        faults = attack(*numbers, *(10, 0)[len(numbers) :], Path(folder))
    print(f"{len(faults)} faults")
    sys.exit(bool(faults))
