"""What an unfinished run keeps on disk: named parts with checksums, each whole or not there."""

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
    """A stored part: its tensors by name and the note that was stored with them."""

    tensors: Mapping[str, Tensor] = field(repr=False)
    note: Json = None


class Parts:
    """The stored parts of one process of a run, in a folder of their own; `folder=None` keeps
    nothing.

    A part is one or several safetensors files of 64 MiB, named by their checksums. The index,
    replaced in one step after the files are on the disk, says which files are which part: a kill at
    any moment leaves the old part or the new one. The index begins with its own checksum; what does
    not have its checksum any more is refused. While a part is written, the disk holds it twice;
    what it replaces goes then. Memory: one file's tensors.

    >>> import tempfile, torch
    >>> parts = Parts(Path(tempfile.mkdtemp()))
    >>> parts.write("pass", {"sum": torch.ones(2)}, note={"next": 3})
    >>> parts.read("pass").tensors["sum"].tolist(), parts.read("pass").note, parts.read("other")
    ([1.0, 1.0], {'next': 3}, None)
    """

    # The first state is stored after this many seconds, and storing takes at most this share of the
    # time; until it has been measured, this many bytes a second.
    FIRST = 10.0
    SHARE = 0.02
    RATE = 250e6
    PIECE = 64 * 2**20

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
        if self.folder is None or not (index := self._index).exists():
            return {}
        try:
            sha, _, text = index.read_bytes().partition(b"\n")
            if sha == _sha(text).encode():
                entries: dict[str, dict[str, Any]] = json.loads(text)
                return entries
        except OSError:
            pass
        raise BadInput(
            f"What was stored in {self.folder} is damaged ({index.name}): start afresh without "
            "--resume."
        )

    def due(self) -> bool:
        """Whether it is time to ask whether to store again (`affordable`): from the 10th second on,
        then every 10 seconds.
        """
        return self.folder is not None and time.monotonic() >= self._next

    def affordable(self, size: float) -> bool:
        """Whether storing so many bytes now leaves all storing at 2 % of the run's time, by what it
        took so far.
        """
        if self.folder is None:
            return False
        now = time.monotonic()
        self._next = now + self.FIRST / 5  # soon again, if it is not
        return self._spent + size / self._rate <= self.SHARE * (now - self._begun)

    def names(self) -> list[str]:
        """The parts that are stored."""
        return list(self._entries())

    def read(self, name: str) -> Part | None:
        """A stored part, None if there is none; BadInput where its file is torn or gone."""
        if (entry := self._entries().get(name)) is None:
            return None
        assert self.folder is not None
        from safetensors.torch import load

        tensors: dict[str, Tensor] = {}
        for file, sha in entry["files"].items():
            at = self.folder / file
            try:
                data = at.read_bytes()
            except OSError:
                data = b""
            if _sha(data) != sha:
                raise BadInput(
                    f"What was stored of this run is damaged ({at} is torn): start afresh without "
                    "--resume."
                )
            tensors |= load(data)
        return Part(tensors, entry["note"])

    def write(
        self, name: str, tensors: Mapping[str, Tensor | np.ndarray], *, note: Json = None
    ) -> None:
        """Store a part in place of the one of this name, and of its stages, the parts "NAME, ..."."""
        if self.folder is None:
            return
        import torch
        from safetensors.torch import save

        clock = time.monotonic()
        size = 0
        entries = {
            key: entry for key, entry in self._entries().items() if not key.startswith(f"{name}, ")
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        safe = "".join(letter if letter.isalnum() or letter in "-._" else "-" for letter in name)[
            :80
        ]
        files: dict[str, str] = {}
        for number, piece in enumerate(self._pieces(tensors)):
            data = save(
                {key: torch.as_tensor(value).contiguous().cpu() for key, value in piece.items()}
            )
            sha = _sha(data)
            size = size + len(data)
            files[file := f"{safe}.{self.rank}.{number}.{sha[:16]}.safetensors"] = sha
            write_atomic(self.folder / file, data)
        entries[name] = {"files": files, "note": note}
        text = json.dumps(entries).encode()
        write_atomic(self._index, _sha(text).encode() + b"\n" + text)
        current_files = {file for entry in entries.values() for file in entry["files"]}
        for (
            path
        ) in self.folder.iterdir():  # what was replaced, and what a killed run had not finished
            if path.name not in current_files and re.search(
                rf"\.{self.rank}\.\d+\.[0-9a-f]{{16}}\.safetensors", path.name
            ):
                path.unlink(missing_ok=True)
        now = time.monotonic()
        self._spent += now - clock
        if size > 2**20:  # less says nothing of the disk
            self._rate = size / (now - clock)
        self._next = now + self.FIRST

    def _pieces(
        self, tensors: Mapping[str, Tensor | np.ndarray]
    ) -> Iterator[dict[str, Tensor | np.ndarray]]:
        """The tensors in groups of at most 64 MiB, or of one that is larger; one group at least."""
        piece: dict[str, Tensor | np.ndarray] = {}
        for key, value in tensors.items():
            if piece and sum(array.nbytes for array in piece.values()) + value.nbytes > self.PIECE:
                yield piece
                piece = {}
            piece[key] = value
        yield piece

    def clear(self) -> None:
        """Forget everything."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
