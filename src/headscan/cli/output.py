"""Where a verb's result goes, and how it is shown."""

import re
import shlex
import sys
from itertools import count, takewhile
from pathlib import Path

from headscan import BadInput, Result
from headscan.cli.again import next_command
from headscan.cli.guard import console, shown
from headscan.run.run import UNFINISHED


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
    following = next_command(result, folder)
    lines = [f"page: {(folder / 'report.html').resolve().as_uri()}"]
    lines += [f"next: {following}"] if following else []
    screen.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)
