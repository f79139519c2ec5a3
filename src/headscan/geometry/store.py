"""A scan that is killed continues: each model's pass is stored now and then, and found again by its protocol."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save

from headscan.errors import BadInput
from headscan.geometry.sweep import Sweep
from headscan.results import write_aside
from headscan.statistics import process_count, process_rank

__all__ = ["Store"]


class Store:
    """The stored passes of one scan, in `FOLDER/.resume/`, one file a pass and process.

    With `resume` a pass that was stored is read back; without, what an earlier run left is forgotten. The protocol of
    the scan is stored beside: a scan with another protocol must not continue this one. `folder=None` stores nothing.
    """

    def __init__(self, folder: Path | None, protocol: dict[str, Any], *, resume: bool, every: float = 60.0):
        self.folder = None if folder is None else folder / ".resume"
        self.every, self._last = every, time.monotonic()
        if resume and self.folder is None:
            raise BadInput("A scan can be resumed only where it was given an output folder (--out).")
        if self.folder is None:
            return
        mine = json.loads(json.dumps(protocol | {"processes": process_count()}))
        if resume:
            self._check(mine)
        elif process_rank() == 0:
            self.clear()
        if process_rank() == 0:
            self.folder.mkdir(exist_ok=True)
            write_aside(self.folder / "protocol.json", json.dumps(mine))

    def _check(self, mine: dict[str, Any]) -> None:
        assert self.folder is not None
        try:
            stored = json.loads((self.folder / "protocol.json").read_text())
        except (OSError, ValueError):
            raise BadInput(f"There is nothing to resume in {self.folder.parent}: no interrupted scan.") from None
        differing = [name for name in mine if mine[name] != stored.get(name)]
        if differing:
            raise BadInput(
                f"The scan in {self.folder.parent} cannot be resumed with another protocol: "
                + ", ".join(f"{name} was {stored.get(name)!r}, is {mine[name]!r}" for name in differing)
                + "."
            )

    def _path(self, name: str) -> Path:
        assert self.folder is not None
        return self.folder / f"{name}.{process_rank()}.safetensors"

    def read(self, name: str) -> Sweep | None:
        """The stored pass of this name, if there is one."""
        if self.folder is None or not self._path(name).exists():
            return None
        return Sweep.restore(load_file(self._path(name)))

    def write(self, name: str, sweep: Sweep, *, now: bool = False) -> None:
        """Store a pass, if the last time was long enough ago or `now` is asked; never one with half a batch in it."""
        if self.folder is None or not sweep.whole or not (now or time.monotonic() - self._last >= self.every):
            return
        state = {key: tensor.contiguous().cpu() for key, tensor in sweep.state().items()}
        write_aside(self._path(name), save(state))
        self._last = time.monotonic()

    def clear(self) -> None:
        """Forget all stored passes: the scan is finished."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
