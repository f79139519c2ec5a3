"""What a model is and where it came from, for the protocol of a result."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["Origin", "file_sha256"]


@dataclass(frozen=True)
class Origin:
    """Where the weights of a Lens came from; all empty for a model that was built, not loaded.

    Attributes:
        source: what the user named.
        revision: the resolved commit, where known, else the revision asked for.
        files: the weight files that were read.
        quantize: "8bit", "4bit" or None.
        random_init: the seed of fresh weights, or None.
    """

    source: str | None = None
    revision: str | None = None
    files: tuple[Path, ...] = ()
    quantize: str | None = None
    random_init: int | None = None

    def sha256(self) -> dict[str, str]:
        """{name: hex digest} of the weight files; reads them whole."""
        return {path.name: file_sha256(path) for path in self.files}


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file as 64 hexadecimal digits; a file that has not changed since is not read again."""
    state = path.stat()
    return _sha256(path, state.st_size, state.st_mtime_ns)


@cache
def _sha256(path: Path, size: int, changed: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
