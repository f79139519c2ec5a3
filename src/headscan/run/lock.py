"""One run a folder: a lock that goes when its holder does, however it goes."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from pathlib import Path
from typing import IO

from headscan.run.errors import BadInput

NAME = ".lock"


class FolderLock:
    """Holds a folder for one process. The system lets go of it when the process ends, also by SIGKILL.

    Raises BadInput where somebody else holds it, and says who: command, process, machine, since when. Where the file
    system has no locks (some network mounts), it says so by `held = False` and holds nothing.

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
        self.path, self.command = folder / NAME, command
        self.held = False
        self._file: IO[str] | None = None

    def take(self) -> None:
        """Take the lock, or raise BadInput that names its holder."""
        try:
            import fcntl
        except ImportError:  # Windows
            return
        file = self.path.open("a+", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = _holder(file.read())
            file.close()
            raise BadInput(
                f"The folder {self.path.parent} is in use by {holder}: wait for it, or name another with --out."
            ) from None
        except OSError:
            file.close()
            return
        file.seek(0)
        file.truncate()
        now = time.strftime("%Y-%m-%d %H:%M:%S %Z")
        file.write(
            json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": now, "command": self.command})
        )
        file.flush()
        self._file, self.held = file, True

    def release(self) -> None:
        """Let go; the file goes too, while the lock is still held, so that it is nobody else's."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self.path.unlink()
            self._file.close()
            self._file, self.held = None, False

    def __enter__(self) -> FolderLock:
        self.take()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _holder(text: str) -> str:
    try:
        record = json.loads(text)
        named = f" ({record['command']})" if record["command"] else ""
        return f"process {record['pid']} on {record['host']} since {record['since']}{named}"
    except (ValueError, KeyError, TypeError):
        return "another process"
