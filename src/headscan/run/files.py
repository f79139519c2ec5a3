"""Folders of results: files that nobody finds half of, one run a folder, and steps that no Ctrl-C
cuts in two.
"""

import errno
import json
import os
import shutil
import signal
import socket
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import IO, Any

from headscan.run.errors import BadInput

ASIDE = ".unfinished"
LOCK = ".lock"
SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
"""Signals that interrupt a run: Ctrl-C, a polite kill, a terminal that is closed."""


def leads_out(folder: Path, file: Path) -> bool:
    """Whether a file named in a folder lies outside of it, by its name or by a link; the Hugging
    Face cache's own links do not.

    >>> leads_out(Path("/a"), Path("/a/../b")), leads_out(Path("/a"), Path("/a/b/c"))
    (True, False)
    """
    home = folder.resolve()
    real = file.resolve()
    caches = (parent.parent / "blobs" for parent in home.parents if parent.name == "snapshots")
    return not (real.is_relative_to(home) or any(map(real.is_relative_to, caches)))


def read_at_most(path: Path, most: int = 1 << 28) -> bytes:
    """The bytes of a file; OSError where there are more than `most`, as a device has, whatever size
    it says.
    """
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        regular = stat.S_ISREG(status.st_mode)
        content = b"" if status.st_size > most else file.read(-1 if regular else most + 1)
    if len(content) > most or status.st_size > most:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), os.fspath(path))
    return content


def check_writable(folder: str | os.PathLike[str]) -> Path:
    """The folder, made if need be; BadInput where nothing can be written into it.

    >>> check_writable("/dev/null/results")
    Traceback (most recent call last):
    headscan.BadInput: The output folder /dev/null/results cannot be written: Not a directory.
    """
    path = Path(os.path.expanduser(folder))
    try:
        str(path).encode("utf-8")
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadInput(f"The output folder {path} cannot be written: {reason}.") from None
    return path


def write_atomic(path: Path, data: bytes | str) -> None:
    """Write a file aside, flush it to the disk and rename it: whoever looks sees the old file or
    the whole new one. The folder is flushed too, so that after a power cut the name leads to one of
    the two. Cost: two fsyncs.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=ASIDE)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data.encode("utf-8") if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        os.umask(mask := os.umask(0))
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    flush_folder(path.parent)


def clear_aside(folder: Path) -> None:
    """Remove what writers that were killed had written aside; only for whoever holds the folder's
    lock.
    """
    for path in folder.glob(f".*{ASIDE}"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def flush_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk; a system that cannot open folders is left alone."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


class FolderLock:
    """Holds a folder for one process. The system lets go of it when the process ends, also by
    SIGKILL.

    Raises BadInput where somebody else holds it, and says who: command, process, machine, since
    when. Where the file system has no locks (some network mounts), it says so by `held = False` and
    holds nothing.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with FolderLock(folder, "headscan scan m --text t"):
    ...     try:
    ...         FolderLock(folder, "another").take()
    ...     except BadInput as error:
    ...         print("headscan scan m --text t" in str(error))
    True
    """

    def __init__(self, folder: Path, command: str | None) -> None:
        self.path = folder / LOCK
        self.command = command
        self.held = False
        self._file: IO[str] | None = None

    def take(self) -> None:
        """Take the lock, or raise BadInput that names its holder."""
        try:
            import fcntl
        except ImportError:  # Windows
            return
        try:  # no link is followed, and a pipe does not wait
            handle = os.open(
                self.path,
                os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK,
                0o666,
            )
        except OSError as error:
            raise BadInput(
                f"{self.path} is no file that could be locked: {error.strerror}."
            ) from None
        file = (
            os.fdopen(handle, "r+", encoding="utf-8")
            if stat.S_ISREG(os.fstat(handle).st_mode)
            else None
        )
        if file is None:
            os.close(handle)
            raise BadInput(f"{self.path} is no file that could be locked.")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            used = f"in use by {_holder(file.read())}"
            file.close()
            raise BadInput(
                f"The folder {self.path.parent} is {used}: wait for it, or name another with --out."
            ) from None
        except OSError:
            file.close()
            return
        file.seek(0)
        file.truncate()
        now = time.strftime("%Y-%m-%d %H:%M:%S %Z")
        file.write(
            json.dumps(
                {
                    "pid": os.getpid(),
                    "host": socket.gethostname(),
                    "since": now,
                    "command": self.command,
                }
            )
        )
        file.flush()
        self._file = file
        self.held = True

    def release(self) -> None:
        """Let go; the file goes too, while the lock is still held, so that it is nobody else's."""
        if self._file is not None:
            with suppress(OSError):
                self.path.unlink()
            self._file.close()
            self._file = None
            self.held = False

    def __enter__(self) -> "FolderLock":
        self.take()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def in_use(folder: Path) -> bool:
    """Return whether a run holds the lock of a folder."""
    with suppress(ImportError, OSError):
        import fcntl

        with (folder / LOCK).open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
    return False


def _holder(text: str) -> str:
    try:
        record = json.loads(text)
        named = f" ({record['command']})" if record["command"] else ""
        return f"process {record['pid']} on {record['host']} since {record['since']}{named}"
    except (ValueError, KeyError, TypeError):
        return "another process"


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let a Ctrl-C (or another of `SIGNALS` that the program handles) wait until the block has
    ended; a second one does not wait.

    KeyboardInterrupt is raised at the end of the block. Without this, an interruption could fall
    between two sites of a batch, and the stored state of the scan would hold the batch for some
    sites only. Signals reach the main thread alone; elsewhere nothing needs to be done.

    >>> try:
    ...     with uninterrupted():
    ...         signal.raise_signal(signal.SIGINT)
    ...         print("the block ends")
    ... except KeyboardInterrupt:
    ...     print("then it is interrupted")
    the block ends
    then it is interrupted
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    caught: list[int] = []

    def remember(number: int, _frame: FrameType | None) -> None:
        if caught:
            raise KeyboardInterrupt
        caught.append(number)

    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    handled = {number: handler for number, handler in handlers.items() if callable(handler)}
    for number in handled:
        signal.signal(number, remember)
    try:
        yield
    finally:
        for number, handler in handled.items():
            signal.signal(number, handler)
    if caught:
        raise KeyboardInterrupt


def read_object(file: Path) -> dict[str, Any]:
    """The JSON object in a file; BadInput where there is none."""
    try:
        parsed = json.loads(read_at_most(file).decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadInput(f"'{file}' is not valid JSON.") from error
    except OSError as error:
        if error.errno != errno.EFBIG:
            raise
        raise BadInput(f"'{file}' is too large to be read.") from error
    if not isinstance(parsed, dict):
        raise BadInput(f"'{file}' is not a JSON object.")
    return parsed
