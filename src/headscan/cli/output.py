"""What all verbs share: where results go, how they are shown, and the progress bar."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from headscan import Result

__all__ = ["command_line", "default_folder", "progress_bar", "show"]


def command_line() -> str:
    """The command as it was typed, for the protocol."""
    return shlex.join(["headscan", *sys.argv[1:]])


def default_folder(verb: str, *words: str) -> Path:
    """`headscan-results/VERB-WORDS`, from the last part of each word.

    >>> default_folder("scan", "openai/gpt2", "texts/a b.txt").as_posix()
    'headscan-results/scan-gpt2-a-b'
    """
    parts = [re.sub(r"[^\w.]+", "-", Path(word).stem if "/" in word else word).strip("-.") for word in words]
    return Path("headscan-results") / "-".join([verb, *(part for part in parts if part)])


def show(result: Result, folder: Path, *, as_json: bool) -> None:
    """Print the result: with `as_json` its result.json alone on standard output, else the table and the page's path."""
    if as_json:
        print(result.json())
        return
    from rich.console import Console

    console = Console()
    console.print(result.table())
    console.print(f"page: {folder / 'report.html'}", markup=False, highlight=False, soft_wrap=True)


@contextmanager
def progress_bar(*, visible: bool = True) -> Iterator[Callable[[str, int, int | None], None]]:
    """A progress bar on standard error with rate and time left; the callback takes (name, done, in all or None).

    What stands behind " · " in the name may change as the work goes on.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:>3.0f} %  {task.completed:,.0f} tokens  {task.fields[rate]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not visible) as bar:

        def update(name: str, done: int, total: int | None) -> None:
            key = name.partition(" · ")[0]
            if key not in tasks:
                for task in tasks.values():
                    bar.update(task, visible=False)
                tasks[key] = bar.add_task(name, total=total, rate="")
            speed = bar.tasks[bar.task_ids.index(tasks[key])].speed
            rate = f"{speed:,.0f} tokens/s" if speed else ""
            bar.update(tasks[key], description=name, completed=done, total=total, rate=rate)

        yield update
