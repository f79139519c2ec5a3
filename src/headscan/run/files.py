"""Writing files so that nobody ever finds half of one."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from headscan.run.errors import BadInput

ASIDE = ".unfinished"


def check_writable(folder: str | os.PathLike[str]) -> Path:
    """The folder, made if need be; BadInput where nothing can be written into it.

    >>> check_writable("/dev/null/results")
    Traceback (most recent call last):
    headscan.BadInput: The output folder /dev/null/results cannot be written: Not a directory.
    """
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except (OSError, ValueError) as error:
        raise BadInput(
            f"The output folder {path} cannot be written: {getattr(error, 'strerror', None) or error}."
        ) from None
    return path


def write_atomic(path: Path, data: bytes | str) -> None:
    """Write a file aside, flush it to the disk and rename it: whoever looks sees the old file or the whole new one.

    The folder is flushed too, so that after a power cut the name leads to one of the two. Cost: two fsyncs.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=ASIDE)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data.encode("utf-8") if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    flush_folder(path.parent)


def clear_aside(folder: Path) -> None:
    """Remove what writers that were killed had written aside; only for whoever holds the folder's lock."""
    for path in folder.glob(f".*{ASIDE}"):
        path.unlink(missing_ok=True)


def flush_folder(folder: Path) -> None:
    """Make the names in a folder last; where the system cannot open folders, nothing can be done."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
