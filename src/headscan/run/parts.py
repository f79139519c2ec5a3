"""The stored parts of an unfinished run: named, with checksums, each whole or not there."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headscan.run.errors import BadInput
from headscan.run.files import write_atomic
from headscan.run.rows import Json

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor


@dataclass(frozen=True)
class Part:
    """A stored part: its tensors by name, and the note that was stored with them."""

    tensors: Mapping[str, Tensor] = field(repr=False)
    note: Json = None


class Parts:
    """The stored parts of one process of a run, in a folder of their own.

    A part is one or several safetensors files of 64 MiB, named by their checksums. The index says
    which files are which part; it is replaced in one step after the files are on the disk, so a
    kill at any moment leaves the old part or the new one. The index begins with its own checksum; a
    file whose content does not have its checksum is refused. While a part is written, the disk
    holds it twice; the files that it replaces are deleted afterwards. Memory: one file's tensors.

    Args:
        folder: None stores nothing.
        rank: the number of the process.

    >>> import tempfile, torch
    >>> parts = Parts(Path(tempfile.mkdtemp()))
    >>> parts.write("pass", {"sum": torch.ones(2)}, note={"next": 3})
    >>> parts.read("pass").tensors["sum"].tolist(), parts.read("pass").note, parts.read("other")
    ([1.0, 1.0], {'next': 3}, None)
    """

    FIRST = 10.0
    """Seconds until the first state is stored, and between states."""

    SHARE = 0.02
    """Storing takes at most this share of the time."""

    RATE = 250e6
    """Bytes a second that are stored, until that has been measured."""

    PIECE = 64 * 2**20
    """Bytes of a file."""

    MEASURABLE = 2**20
    """Storing fewer bytes does not measure the speed of the disk."""

    LONGEST_NAME = 80
    """Characters of a part's name that are in the names of its files."""

    def __init__(self, folder: Path | None, *, rank: int = 0) -> None:
        self.folder = folder
        self.rank = rank
        self._begun = time.monotonic()
        self._next = self._begun + self.FIRST
        self._spent = 0.0
        self._rate = self.RATE

    @property
    def _index(self) -> Path:
        assert self.folder is not None
        return self.folder / f"parts.{self.rank}.json"

    def _entries(self) -> dict[str, dict[str, Any]]:
        """Return the index: of each part its note, and the checksums of its files."""
        if self.folder is None or not self._index.exists():
            return {}
        damaged = BadInput(
            f"What was stored in {self.folder} is damaged ({self._index.name}): start afresh "
            "without --resume."
        )
        try:
            checksum, _, text = self._index.read_bytes().partition(b"\n")
        except OSError:
            raise damaged from None
        if checksum != _sha(text).encode():
            raise damaged
        entries: dict[str, dict[str, Any]] = json.loads(text)
        return entries

    def due(self) -> bool:
        """Return whether it is time to ask whether a state is `affordable`.

        It is from the 10th second on, then every 10 seconds.
        """
        return self.folder is not None and time.monotonic() >= self._next

    def affordable(self, size: float) -> bool:
        """Return whether storing so many bytes keeps all storing at 2 % of the run's time."""
        if self.folder is None:
            return False
        now = time.monotonic()
        self._next = now + self.FIRST / 5  # soon again, if it is not
        return self._spent + size / self._rate <= self.SHARE * (now - self._begun)

    def names(self) -> list[str]:
        """Return the names of the parts that are stored."""
        return list(self._entries())

    def read(self, name: str) -> Part | None:
        """Return a stored part, None if there is none.

        Raises:
            BadInput: where a file of it is torn or gone.
        """
        entry = self._entries().get(name)
        if entry is None:
            return None
        from safetensors.torch import load

        tensors: dict[str, Tensor] = {}
        for file_name, checksum in entry["files"].items():
            tensors |= load(self._checked(file_name, checksum))
        return Part(tensors, entry["note"])

    def _checked(self, file_name: str, checksum: str) -> bytes:
        """Return the content of a file; BadInput where it does not have its checksum."""
        assert self.folder is not None
        path = self.folder / file_name
        try:
            data = path.read_bytes()
        except OSError:
            data = b""
        if _sha(data) != checksum:
            raise BadInput(
                f"What was stored of this run is damaged ({path} is torn): start afresh without "
                "--resume."
            )
        return data

    def write(
        self, name: str, tensors: Mapping[str, Tensor | np.ndarray], *, note: Json = None
    ) -> None:
        """Store a part; it replaces the one of this name and its stages, the parts "NAME, ..."."""
        if self.folder is None:
            return
        started = time.monotonic()
        entries = {}
        for part, entry in self._entries().items():
            if not part.startswith(f"{name}, "):
                entries[part] = entry

        self.folder.mkdir(parents=True, exist_ok=True)
        size = 0
        files: dict[str, str] = {}
        for number, piece in enumerate(self._pieces(tensors)):
            data = _packed(piece)
            checksum = _sha(data)
            file_name = self._file_name(name, number, checksum)
            write_atomic(self.folder / file_name, data)
            files[file_name] = checksum
            size += len(data)
        entries[name] = {"files": files, "note": note}
        text = json.dumps(entries).encode()
        write_atomic(self._index, _sha(text).encode() + b"\n" + text)
        self._delete_unused(entries)

        now = time.monotonic()
        self._spent += now - started
        if size > self.MEASURABLE:
            self._rate = size / (now - started)
        self._next = now + self.FIRST

    def _file_name(self, part: str, number: int, checksum: str) -> str:
        """Return the name of a file of a part, without characters that a system may not take."""
        letters = [letter if letter.isalnum() or letter in "-._" else "-" for letter in part]
        stem = "".join(letters)[: self.LONGEST_NAME]
        return f"{stem}.{self.rank}.{number}.{checksum[:16]}.safetensors"

    def _delete_unused(self, entries: Mapping[str, Mapping[str, Any]]) -> None:
        """Delete the files that were replaced, and those that a killed run had not finished."""
        assert self.folder is not None
        used = set()
        for entry in entries.values():
            used.update(entry["files"])
        of_this_process = re.compile(rf"\.{self.rank}\.\d+\.[0-9a-f]{{16}}\.safetensors")
        for path in self.folder.iterdir():
            if path.name not in used and of_this_process.search(path.name):
                path.unlink(missing_ok=True)

    def _pieces(
        self, tensors: Mapping[str, Tensor | np.ndarray]
    ) -> Iterator[dict[str, Tensor | np.ndarray]]:
        """Yield the tensors in groups of at most 64 MiB, or of one that is larger.

        There is one group at least.
        """
        piece: dict[str, Tensor | np.ndarray] = {}
        for key, value in tensors.items():
            if piece and sum(array.nbytes for array in piece.values()) + value.nbytes > self.PIECE:
                yield piece
                piece = {}
            piece[key] = value
        yield piece

    def clear(self) -> None:
        """Delete all parts."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


def _packed(tensors: Mapping[str, Tensor | np.ndarray]) -> bytes:
    """Return the content of a safetensors file."""
    import torch
    from safetensors.torch import save

    on_cpu = {}
    for key, value in tensors.items():
        on_cpu[key] = torch.as_tensor(value).contiguous().cpu()
    return save(on_cpu)


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
