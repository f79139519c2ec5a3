"""Where a verb's result goes, and how it is shown."""

import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count, takewhile
from pathlib import Path

from headscan import BadInput, Result
from headscan.cli.again import next_command
from headscan.cli.guard import console, shown
from headscan.run.files import check_writable, in_use
from headscan.run.rows import ModelRecord
from headscan.run.run import UNFINISHED
from headscan.run.saving import CURRENT, DOCUMENT


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


@contextmanager
def free_folder(folder: Path, *, resume: bool) -> Iterator[Path]:
    """Hold the default folder, or FOLDER-2, FOLDER-3, ... where that holds a result or is in use.

    Runs that start at the same time get different folders. With `resume` it is the last folder that
    exists.
    """
    numbered = (
        folder if number == 1 else folder.with_name(f"{folder.name}-{number}")
        for number in count(1)
    )
    if resume:
        existing = list(takewhile(Path.exists, numbered))
        yield existing[-1] if existing else folder
        return
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:  # the processes of one run share a folder
        yield next(place for place in numbered if not (place / DOCUMENT).exists())
        return
    for candidate in numbered:
        made = not candidate.exists()
        handle = None if _is_taken(candidate) else _claimed(candidate)
        if handle is None:
            continue
        try:
            yield candidate
            return
        finally:
            os.close(handle)
            if made:
                with suppress(OSError):  # there is a result in it
                    candidate.rmdir()


def _is_taken(folder: Path) -> bool:
    """Return whether a folder holds a result, or a run is in it."""
    return (folder / DOCUMENT).exists() or (folder / CURRENT).exists() or in_use(folder)


def _claimed(folder: Path) -> int | None:
    """Return a handle of the folder that no other process can have; None where one has it."""
    check_writable(folder)
    handle = os.open(folder, os.O_RDONLY)
    with suppress(ImportError, OSError):  # Windows, or a file system without locks
        import fcntl

        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return None
    if _is_taken(folder):  # a run has ended between the two questions
        os.close(handle)
        return None
    return handle


def finished_before(
    folder: Path, *, resume: bool, overwrite: bool, continues: bool
) -> Result | None:
    """Return the finished result that a folder holds, to be shown again.

    It is shown with `resume`, where the same command made it and its models are what they were. A
    run that `continues` keeps what it goes on from; another's folder with that is one that was
    interrupted.

    Raises:
        BadInput: for any other result, which a run would replace: `--overwrite` allows that.
    """
    interrupted = (folder / UNFINISHED).exists() and not continues
    holds_result = (folder / DOCUMENT).is_file() or (folder / CURRENT / DOCUMENT).is_file()
    if overwrite or not holds_result or (resume and (continues or interrupted)):
        return None
    import headscan

    try:
        finished = headscan.load(folder)
        maker = finished.protocol.command or f"a run of {finished.protocol.verb}"
    except BadInput:
        finished = None
        maker = "another program or version"
    if resume and finished is not None and _words(maker) == _words(command_line()):
        refuse_changed_models(folder, finished.models)
        return finished
    if resume:
        raise BadInput(
            f"The run in {folder} is finished, and was another one ({maker}): there is nothing to "
            "resume."
        )
    advice = "Give --overwrite to replace it, or another --out."
    if interrupted:
        advice = "Give --resume to go on with the interrupted run that replaces it. " + advice
    raise BadInput(f"{folder} holds a finished result ({maker}). {advice}")


def refuse_changed_models(folder: Path, models: Sequence[ModelRecord]) -> None:
    """Raise BadInput where a model of a finished result has other files by now.

    A link may lead to another model, or a file may have been replaced. What is on the hub and not
    in the cache is not compared.
    """
    from headscan.model.finding import find_source
    from headscan.model.identity import Origin

    for model in models:
        if model.source is None or not model.sha256:
            continue
        source = find_source(model.source)
        present = Origin(files=source.files(weights=True)).sha256()
        changed = [name for name, digest in present.items() if model.sha256.get(name) != digest]
        missing = [name for name in model.sha256 if present and name not in present]
        if changed or missing:
            raise BadInput(
                f"The run in {folder} is finished, and {(changed + missing)[0]} of the model "
                f"'{model.source}' is not the file that it read: there is nothing to resume. Give "
                "--overwrite to replace the result, or another --out."
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
