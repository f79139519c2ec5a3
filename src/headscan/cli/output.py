"""What all verbs share: where results go, how they are shown, and how progress is."""

import errno
import os
import re
import shlex
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from itertools import count, takewhile
from pathlib import Path
from typing import Any

from headscan import BadInput, Result
from headscan.cli.guard import console, guarded, shown
from headscan.run.run import UNFINISHED

Progress = Callable[[str, int, int | None, str], None]
# seconds: least and most between two lines of progress where standard error is no terminal
EVERY = 10.0
SILENT = 60.0
# seconds in which all processes of a run begin; torch's store may wait for twice as long, and a
# minute is promised
JOIN = 29.0


def command_line() -> str:
    """The command as it was typed, for the protocol."""
    return shlex.join(["headscan", *sys.argv[1:]])


def default_folder(verb: str, *names: str) -> Path:
    """`headscan-results/VERB-WORDS`, from the last part of each word.

    >>> default_folder("scan", "openai/gpt2", "texts/a b.txt").as_posix()
    'headscan-results/scan-gpt2-a-b'
    """
    parts = [
        re.sub(r"[^\w.]+", "-", Path(word).stem if "/" in word else word).strip("-.")
        for word in names
    ]
    return Path("headscan-results") / "-".join([verb, *(part for part in parts if part)])[:120]


def free_folder(folder: Path, *, resume: bool) -> Path:
    """The default folder, or FOLDER-2, FOLDER-3, ... where that holds a result; with `resume` the
    last that exists.
    """
    numbered = (
        folder if number == 1 else folder.with_name(f"{folder.name}-{number}")
        for number in count(1)
    )
    if resume:
        existing = list(takewhile(Path.exists, numbered))
        return existing[-1] if existing else folder
    return next(candidate for candidate in numbered if not (candidate / "result.json").exists())


def finished_before(
    folder: Path, *, resume: bool, overwrite: bool, continues: bool
) -> Result | None:
    """The finished result that a folder holds, to be shown again: with `resume`, and made by the
    same command.

    BadInput for any other, which a run would replace: `--overwrite` says that it may. A run that
    `continues` keeps what it goes on from; another's folder with that is one that was interrupted.
    """
    interrupted = (folder / UNFINISHED).exists() and not continues
    if overwrite or (continues and resume) or interrupted or not (folder / "result.json").is_file():
        return None
    import headscan

    try:
        finished = headscan.load(folder)
        maker = finished.protocol.command or f"a run of {finished.protocol.verb}"
    except BadInput:
        finished = None
        maker = "another program or version"
    if resume and finished is not None and _words(maker) == _words(command_line()):
        return finished
    if resume:
        raise BadInput(
            f"The run in {folder} is finished, and was another one ({maker}): there is nothing to "
            "resume."
        )
    raise BadInput(
        f"{folder} holds a finished result ({maker}). Give --overwrite to replace it, or another "
        "--out."
    )


def _words(command: str) -> list[str]:
    """A command without what does not change its result."""
    return [
        word
        for word in shlex.split(command)[1:]
        if word not in ("--resume", "--json", "--overwrite", "--verbose", "-v")
    ]


def show(result: Result, folder: Path, *, as_json: bool, whole: bool = False) -> None:
    """Print the result: with `as_json` its result.json alone on standard output, else the table and
    the page's path.
    """
    if as_json:
        text = shown(result.json() + "\n", "\\u{:04x}")
        if hasattr(sys.stdout, "buffer"):
            sys.stdout.buffer.write(text.encode("utf-8"))
            sys.stdout.buffer.flush()
        else:
            sys.stdout.write(text)
        return
    screen = console()
    screen.print(result.table(whole=True) if whole else result.table())
    screen.print(
        f"page: {(folder / 'report.html').resolve().as_uri()}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )


@contextmanager
def progress_bar(*, visible: bool = True) -> Iterator[Progress]:
    """Progress on standard error: a bar with rate and time left in a terminal, a line now and then
    elsewhere. What stands behind " · " in a stage's name may change as the work goes on.
    """
    if visible and not sys.stderr.isatty():
        with _lines() as lines:
            yield lines
        return
    from rich.progress import BarColumn, ProgressColumn, Task, TaskID, TextColumn
    from rich.progress import Progress as Bar
    from rich.text import Text

    class Counted(ProgressColumn):
        def render(self, task: Task) -> Text:
            count_text = _counted(int(task.completed), None, task.fields["unit"])
            unit = task.fields["unit"]
            share = f"{task.percentage:.0f} %  " if task.total and unit != "%" else ""
            speed = f"  {task.speed:,.0f} {unit}/s" if task.speed and unit != "%" else ""
            left = (
                ""
                if task.finished or not task.time_remaining
                else f", about {_duration(task.time_remaining)} left"
            )
            return Text(f"{share}{count_text}{speed}  {_duration(task.elapsed or 0)}{left}")

    tasks: dict[str, TaskID] = {}
    columns = TextColumn("{task.description}", markup=False), BarColumn(bar_width=24), Counted()
    with (
        Bar(*columns, console=console(sys.stderr), transient=True, disable=not visible) as bar,
        guarded(),
    ):

        def update(stage: str, done: int, total: int | None = None, unit: str = "tokens") -> None:
            key = stage.partition(" · ")[0]
            if key not in tasks:
                for task in tasks.values():
                    bar.update(task, visible=False)
                tasks[key] = bar.add_task(stage, total=total, unit=unit)
            bar.update(tasks[key], description=stage, completed=done, total=total, unit=unit)

        yield update


@contextmanager
def _lines() -> Iterator[Progress]:
    """A line of progress every ten seconds, and once a minute where the work itself says nothing."""
    begun = last = time.monotonic()
    status, over = "at work", threading.Event()
    stages: dict[str, tuple[float, int]] = {}

    def say(line: str) -> None:
        nonlocal last
        last = time.monotonic()
        print(f"headscan: {line}", file=sys.stderr, flush=True)

    def update(stage: str, done: int, total: int | None = None, unit: str = "tokens") -> None:
        nonlocal status
        now = time.monotonic()
        left = ""
        start, done_at_start = stages.setdefault(stage.partition(" · ")[0], (now, done))
        if total and done > done_at_start and now - start >= EVERY:
            left = (
                f", about {_duration((now - start) * (total - done) / (done - done_at_start))} left"
            )
        status = f"{stage}: {_counted(done, total, unit)}{left}"
        if now - last >= EVERY:
            say(status)

    def remind() -> None:
        while not over.wait(EVERY):
            if time.monotonic() - last >= SILENT:
                say(f"{status} ({_duration(time.monotonic() - begun)} so far)")

    threading.Thread(target=remind, daemon=True).start()
    try:
        yield update
    finally:
        over.set()


def _counted(done: int, total: int | None, unit: str) -> str:
    """
    >>> _counted(1024, 4096, "tokens"), _counted(17, 100, "%")
    ('1,024 of 4,096 tokens', '17 %')
    """
    return f"{done} %" if unit == "%" else f"{done:,}{f' of {total:,}' if total else ''} {unit}"


def _duration(seconds: float) -> str:
    """In the unit that a reader would take.

    >>> _duration(40.2), _duration(600), _duration(9000)
    ('40 s', '10 min', '2.5 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


DIED = "Another process of this run has died. Continue with the same command and --resume."


@contextmanager
def _watched(store: Any, rank: int, count: int) -> Iterator[threading.Event]:
    """Ends this process as SIGTERM does, and sets what is yielded, where another one ends before
    its time. The system closes the connections between process 0 and the others then. Who ends in
    order says so first.
    """
    links = list[socket.socket]()
    died = threading.Event()
    leaving = threading.Event()

    def listen(link: socket.socket) -> None:
        farewell = b""
        with suppress(OSError):
            farewell = link.recv(1)
        if not farewell and not leaving.is_set():
            died.set()
            os.kill(os.getpid(), signal.SIGTERM)

    limit = time.monotonic() + JOIN
    with socket.create_server(("", 0)) as server:
        server.settimeout(JOIN)
        store.set(f"{rank}", str(server.getsockname()[1]))
        while not store.check([f"{peer}" for peer in range(count)]):
            if time.monotonic() > limit:
                raise OSError(
                    errno.ECONNRESET,
                    f"Another process of this run has died: it did not join in {JOIN:.0f} seconds.",
                )
            time.sleep(0.05)
        address = (os.environ.get("MASTER_ADDR", "localhost"), int(store.get("0")))
        with suppress(OSError):  # where no connection can be made, nobody watches
            for _ in range(1 if rank else count - 1):
                links.append(
                    socket.create_connection(address, JOIN) if rank else server.accept()[0]
                )
                links[-1].settimeout(None)
                threading.Thread(target=listen, args=(links[-1],), daemon=True).start()
    try:
        yield died
        for link in links:
            with suppress(OSError):
                link.sendall(b".")
    finally:
        leaving.set()
        for link in links:
            link.close()


@contextmanager
def joined(*, wanted: bool = True) -> Iterator[bool]:
    """Join the process group that `torchrun` describes, if there is one; yields whether this
    process may print. Where another process dies, this one stores its state, and raises OSError
    (ECONNRESET).
    """
    if not wanted or int(os.environ.get("WORLD_SIZE", "1")) < 2:
        yield True
        return
    import torch
    import torch.distributed as dist
    from torch.distributed.rendezvous import rendezvous

    died: Any = None
    try:
        store, rank, count = next(rendezvous("env://", timeout=timedelta(seconds=JOIN)))
        with _watched(store, rank, count) as died:
            if torch.cuda.is_available():
                torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
            dist.init_process_group(
                "nccl" if torch.cuda.is_available() else "gloo",
                store=store,
                rank=rank,
                world_size=count,
            )
            yield rank == 0
    except (KeyboardInterrupt, RuntimeError) as error:
        if isinstance(error, dist.DistError) or (
            died is not None and died.wait(1)
        ):  # what failed, or torchrun, may be faster
            raise OSError(errno.ECONNRESET, DIED) from error
        raise
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
