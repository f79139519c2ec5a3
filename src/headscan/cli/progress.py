"""Progress on standard error: a bar in a terminal, a line now and then elsewhere."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headscan.cli.guard import console, guarded

Progress = Callable[[str, int, int | None, str], None]
# Seconds between two lines where standard error is no terminal: the least, and the most.
LEAST_PAUSE = 10.0
LONGEST_SILENCE = 60.0


@contextmanager
def progress_bar(*, visible: bool = True) -> Iterator[Progress]:
    """Show progress on standard error while the context lasts.

    Yields:
        The function that verbs call with (stage, done, total or None, unit). A terminal gets a bar
        with rate and time left. Text behind " · " in a stage's name may change as the work goes on.
    """
    if visible and not sys.stderr.isatty():
        with _lines() as update:
            yield update
        return
    with _bar(visible=visible) as update:
        yield update


@contextmanager
def _bar(*, visible: bool) -> Iterator[Progress]:
    """Show a bar with rate and time left."""
    from rich.progress import BarColumn, ProgressColumn, Task, TaskID, TextColumn
    from rich.progress import Progress as Bar
    from rich.text import Text

    class Counted(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(
                _bar_text(
                    done=int(task.completed),
                    percentage=task.percentage if task.total else None,
                    speed=task.speed,
                    unit=task.fields["unit"],
                    elapsed=task.elapsed or 0.0,
                    remaining=None if task.finished else task.time_remaining,
                )
            )

    columns = TextColumn("{task.description}", markup=False), BarColumn(bar_width=24), Counted()
    tasks: dict[str, TaskID] = {}
    bar = Bar(*columns, console=console(sys.stderr), transient=True, disable=not visible)
    with bar, guarded():

        def update(stage: str, done: int, total: int | None = None, unit: str = "tokens") -> None:
            key = stage.partition(" · ")[0]
            if key not in tasks:
                for task in tasks.values():
                    bar.update(task, visible=False)
                tasks[key] = bar.add_task(stage, total=total, unit=unit)
            bar.update(tasks[key], description=stage, completed=done, total=total, unit=unit)

        yield update


def _bar_text(
    *,
    done: int,
    percentage: float | None,
    speed: float | None,
    unit: str,
    elapsed: float,
    remaining: float | None,
) -> str:
    """Return what stands behind the bar.

    >>> _bar_text(done=512, percentage=50, speed=100, unit="tokens", elapsed=5, remaining=5)
    '50 %  512 tokens  100 tokens/s  5 s, about 5 s left'
    """
    parts = [_counted(done, None, unit)]
    if unit != "%":
        if percentage is not None:
            parts.insert(0, f"{percentage:.0f} %")
        if speed:
            parts.append(f"{speed:,.0f} {unit}/s")
    left = f", about {_duration(remaining)} left" if remaining else ""
    return "  ".join([*parts, f"{_duration(elapsed)}{left}"])


@contextmanager
def _lines() -> Iterator[Progress]:
    """Print a line every ten seconds, and once a minute where the work itself says nothing."""
    begun = time.monotonic()
    printed_at = begun
    status = "at work"
    finished = threading.Event()
    starts: dict[str, tuple[float, int]] = {}

    def say(line: str) -> None:
        nonlocal printed_at
        printed_at = time.monotonic()
        print(f"headscan: {line}", file=sys.stderr, flush=True)

    def update(stage: str, done: int, total: int | None = None, unit: str = "tokens") -> None:
        nonlocal status
        now = time.monotonic()
        started_at, done_at_start = starts.setdefault(stage.partition(" · ")[0], (now, done))
        left = ""
        if total and done > done_at_start and now - started_at >= LEAST_PAUSE:
            seconds_a_unit = (now - started_at) / (done - done_at_start)
            left = f", about {_duration(seconds_a_unit * (total - done))} left"
        status = f"{stage}: {_counted(done, total, unit)}{left}"
        if now - printed_at >= LEAST_PAUSE:
            say(status)

    def remind() -> None:
        while not finished.wait(LEAST_PAUSE):
            if time.monotonic() - printed_at >= LONGEST_SILENCE:
                say(f"{status} ({_duration(time.monotonic() - begun)} so far)")

    threading.Thread(target=remind, daemon=True).start()
    try:
        yield update
    finally:
        finished.set()


def _counted(done: int, total: int | None, unit: str) -> str:
    """Return how much is done.

    >>> _counted(1024, 4096, "tokens"), _counted(17, 100, "%")
    ('1,024 of 4,096 tokens', '17 %')
    """
    if unit == "%":
        return f"{done} %"
    of_total = f" of {total:,}" if total else ""
    return f"{done:,}{of_total} {unit}"


def _duration(seconds: float) -> str:
    """Return a duration in the unit that a reader would take.

    >>> _duration(40.2), _duration(600), _duration(9000)
    ('40 s', '10 min', '2.5 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
