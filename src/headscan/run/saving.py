"""Files of a result that are replaced as one: a reader finds all the old ones or all the new ones.

New files are written into a folder aside. One rename makes them the current ones (the folder
`.result`); then they are moved to their names, result.json last. A writer that is killed before the
rename leaves the old files; one that is killed after it leaves `.result`, from which readers read,
and which the next writer moves.
"""

import hashlib
import json
import shutil
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from headscan.run.errors import BadInput
from headscan.run.files import ASIDE, flush_folder, read_at_most, write_atomic
from headscan.run.memory import memory

SCHEMA = 2
"""The version of result.json's schema; 0.1 wrote none."""
CURRENT = ".result"
DOCUMENT = "result.json"
TRIES = 40
PAUSE = 0.05


def sha256(data: bytes) -> str:
    """Return the hex digest of some bytes."""
    return hashlib.sha256(data).hexdigest()


def replace_together(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files of a folder, all of them or none; a file without a byte is removed.

    One of them is result.json. Cost: each file is flushed to the disk, and the folder twice.
    """
    aside = Path(tempfile.mkdtemp(dir=folder, prefix=f"{CURRENT}.", suffix=ASIDE))
    try:
        aside.chmod(0o755)
        for name, data in files.items():
            write_atomic(aside / name, data)
        while True:
            finish_replacement(folder)
            try:
                aside.rename(folder / CURRENT)
                break
            except OSError:
                if not (folder / CURRENT).exists():
                    raise
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    flush_folder(folder)
    finish_replacement(folder)


def finish_replacement(folder: Path) -> None:
    """Move to their names the files of a replacement that was decided and not finished."""
    current = folder / CURRENT
    if not current.is_dir():
        return
    for path in sorted(current.iterdir(), key=lambda path: path.name == DOCUMENT):
        with suppress(FileNotFoundError):  # another process moves them, too
            if path.stat().st_size:
                path.replace(folder / path.name)
            else:
                (folder / path.name).unlink(missing_ok=True)
                path.unlink()
    flush_folder(folder)
    with suppress(OSError):
        current.rmdir()


def _read(folder: Path, name: str) -> bytes:
    """Return the current bytes of a file; FileNotFoundError where there is none, OSError where it
    is larger than the memory.
    """
    most = memory()[1]
    try:
        data = read_at_most(folder / CURRENT / name, most)
    except (FileNotFoundError, NotADirectoryError):
        return read_at_most(folder / name, most)
    if not data:
        raise FileNotFoundError(name)
    return data


def _hashes(document: bytes) -> dict[str, str]:
    """Return the hashes that a result.json holds; none of an older one, or of what is damaged."""
    with suppress(ValueError, RecursionError, AttributeError):
        stored = json.loads(document).get("files")
        if isinstance(stored, dict):
            return stored
    return {}


def read_together(folder: Path, optional: frozenset[str] = frozenset()) -> dict[str, bytes]:
    """Return result.json and the files whose hashes it holds, as one writer wrote them.

    Files are read again while a writer replaces them.

    Args:
        optional: files that may have been removed.

    Raises:
        FileNotFoundError: where there is no result.json.
        BadInput: where a file is not the one that was saved with result.json.
    """
    for attempt in range(TRIES):
        if attempt:
            time.sleep(PAUSE)
        files = {DOCUMENT: _read(folder, DOCUMENT)}
        wrong = None
        for name, digest in _hashes(files[DOCUMENT]).items():
            if Path(name).name != name:
                raise BadInput(f"{folder / DOCUMENT} names a file outside of its folder.")
            try:
                data = _read(folder, name)
            except FileNotFoundError:
                wrong = None if name in optional else name
            else:
                files[name] = data
                wrong = None if sha256(data) == digest else name
            if wrong is not None:
                break
        if wrong is None:
            return files
        if not _in_motion(folder, files[DOCUMENT]) and attempt:
            break
    raise BadInput(
        f"{folder} holds files of two results: {wrong} is not the one that was saved with "
        f"{DOCUMENT}. Run the command in its protocol again."
    )


def _in_motion(folder: Path, document: bytes) -> bool:
    """Return whether a writer is at work, or has been since result.json was read."""
    if (folder / CURRENT).exists():
        return True
    return _read(folder, DOCUMENT) != document
