"""What all verbs share: where results go, how they are shown, and how progress is."""

import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from headscan import Result

Progress = Callable[[str, int, int | None, str], None]
EVERY = 10.0  # seconds between two lines of progress where standard error is no terminal


def command_line() -> str:
    """The command as it was typed, for the protocol."""
    return shlex.join(["headscan", *sys.argv[1:]])


def default_folder(verb: str, *words: str) -> Path:
    """`headscan-results/VERB-WORDS`, from the last part of each word.

    >>> default_folder("scan", "openai/gpt2", "texts/a b.txt").as_posix()
    'headscan-results/scan-gpt2-a-b'
    """
    parts = [re.sub(r"[^\w.]+", "-", Path(word).stem if "/" in word else word).strip("-.") for word in words]
    return Path("headscan-results") / "-".join([verb, *(part for part in parts if part)])[:120]


def show(result: Result, folder: Path, *, as_json: bool) -> None:
    """Print the result: with `as_json` its result.json alone on standard output, else the table and the page's path."""
    if as_json:
        if hasattr(sys.stdout, "buffer"):
            sys.stdout.buffer.write((result.json() + "\n").encode("utf-8"))
            sys.stdout.buffer.flush()
        else:
            sys.stdout.write(result.json() + "\n")
        return
    from rich.console import Console

    console = Console()
    console.print(result.table())
    console.print(f"page: {folder / 'report.html'}", markup=False, highlight=False, soft_wrap=True)


@contextmanager
def progress_bar(*, visible: bool = True) -> Iterator[Progress]:
    """Progress on standard error: a bar with rate and time left in a terminal, a line now and then elsewhere.

    What stands behind " · " in a stage's name may change as the work goes on.
    """
    if visible and not sys.stderr.isatty():
        yield _lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}", markup=False), BarColumn(bar_width=24),
        TextColumn("{task.percentage:>3.0f} %  {task.completed:,.0f} {task.fields[unit]}  {task.fields[rate]}"),
        TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
    )  # fmt: skip
    tasks: dict[str, TaskID] = {}
    with Bar(*columns, console=Console(stderr=True), transient=True, disable=not visible) as bar:

        def update(stage: str, done: int, total: int | None = None, unit: str = "tokens") -> None:
            key = stage.partition(" · ")[0]
            if key not in tasks:
                for task in tasks.values():
                    bar.update(task, visible=False)
                tasks[key] = bar.add_task(stage, total=total, rate="", unit=unit)
            speed = bar.tasks[bar.task_ids.index(tasks[key])].speed
            rate = f"{speed:,.0f} {unit}/s" if speed else ""
            bar.update(tasks[key], description=stage, completed=done, total=total, rate=rate)

        yield update


def _lines() -> Progress:
    """A line of progress every ten seconds: work that is done before that says nothing."""
    last = time.monotonic()
    begun: dict[str, tuple[float, int]] = {}

    def update(stage: str, done: int, total: int | None = None, unit: str = "tokens") -> None:
        nonlocal last
        now = time.monotonic()
        start, before = begun.setdefault(stage.partition(" · ")[0], (now, done))
        if now - last >= EVERY:
            last = now
            of, left = f" of {total:,}" if total else "", ""
            if total and done > before and now - start >= EVERY:
                left = f", about {_duration((now - start) * (total - done) / (done - before))} left"
            print(f"headscan: {stage}: {done:,}{of} {unit}{left}", file=sys.stderr, flush=True)

    return update


def _duration(seconds: float) -> str:
    """In the unit that a reader would take.

    >>> _duration(40.2), _duration(600), _duration(9000)
    ('40 s', '10 min', '2.5 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


@contextmanager
def joined(*, wanted: bool = True) -> Iterator[bool]:
    """Join the process group that `torchrun` describes, if there is one; yields whether this process may print."""
    if not wanted or int(os.environ.get("WORLD_SIZE", "1")) < 2:
        yield True
        return
    import torch
    import torch.distributed as dist

    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    try:
        yield dist.get_rank() == 0
    finally:
        dist.destroy_process_group()
