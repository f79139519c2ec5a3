"""What an unfinished run keeps on disk: named parts with checksums, each whole or not there."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from headscan.run.errors import BadInput
from headscan.run.files import write_atomic
from headscan.run.plaindata import Json

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

__all__ = ["Part", "Parts"]


@dataclass(frozen=True)
class Part:
    """A stored part: its tensors by name and the note that was stored with them."""

    tensors: Mapping[str, Tensor] = field(repr=False)
    note: Json = None


class Parts:
    """The stored parts of one process of a run, in a folder of their own; `folder=None` keeps nothing.

    A part is a safetensors file named by its checksum. The index, replaced in one step after the file is on the disk,
    says which file is which part: a kill at any moment leaves the old part or the new one. A file that does not have
    its checksum any more is refused.

    >>> import tempfile, torch
    >>> parts = Parts(Path(tempfile.mkdtemp()))
    >>> parts.write("pass", {"sum": torch.ones(2)}, note={"next": 3})
    >>> parts.read("pass").tensors["sum"].tolist(), parts.read("pass").note, parts.read("other")
    ([1.0, 1.0], {'next': 3}, None)
    """

    # The first state is stored after this many seconds, and storing takes at most this share of the time.
    FIRST, SHARE = 10.0, 0.03

    def __init__(self, folder: Path | None, *, rank: int = 0) -> None:
        self.folder, self.rank = folder, rank
        self._next = time.monotonic() + self.FIRST

    @property
    def _index(self) -> Path:
        assert self.folder is not None
        return self.folder / f"parts.{self.rank}.json"

    def _entries(self) -> dict[str, dict[str, Json]]:
        if self.folder is None or not self._index.exists():
            return {}
        try:
            found = json.loads(self._index.read_text(encoding="utf-8"))
            if isinstance(found, dict):
                return found
        except (OSError, ValueError):
            pass
        raise BadInput(
            f"What was stored in {self.folder} is damaged ({self._index.name}): start afresh without --resume."
        )

    def due(self) -> bool:
        """Whether it is time to store again: from the 10th second on, and never more than 3 % of the time."""
        return self.folder is not None and time.monotonic() >= self._next

    def names(self) -> list[str]:
        """The parts that are stored."""
        return list(self._entries())

    def read(self, name: str) -> Part | None:
        """A stored part, None if there is none; BadInput where its file is torn or gone."""
        entry = self._entries().get(name)
        if entry is None:
            return None
        assert self.folder is not None
        from safetensors.torch import load

        path = self.folder / str(entry["file"])
        try:
            data = path.read_bytes()
        except OSError:
            data = b""
        if hashlib.sha256(data).hexdigest() != entry["sha256"]:
            raise BadInput(f"What was stored of this run is damaged ({path} is torn): start afresh without --resume.")
        return Part(load(data), entry["note"])

    def write(self, name: str, tensors: Mapping[str, Tensor | np.ndarray], *, note: Json = None) -> None:
        """Store a part in place of the one of this name."""
        if self.folder is None:
            return
        import torch
        from safetensors.torch import save

        clock = time.monotonic()
        data = save({key: torch.as_tensor(value).contiguous().cpu() for key, value in tensors.items()})
        sha = hashlib.sha256(data).hexdigest()
        entries = self._entries()
        old = entries.get(name, {}).get("file")
        safe = "".join(letter if letter.isalnum() or letter in "-._" else "-" for letter in name)[:80]
        file = f"{safe}.{self.rank}.{sha[:16]}.safetensors"
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomic(self.folder / file, data)
        entries[name] = {"file": file, "sha256": sha, "note": note}
        write_atomic(self._index, json.dumps(entries))
        if old and old != file and all(entry["file"] != old for entry in entries.values()):
            (self.folder / str(old)).unlink(missing_ok=True)
        now = time.monotonic()
        self._next = now + max(self.FIRST, (now - clock) / self.SHARE)

    def clear(self) -> None:
        """Forget everything."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
