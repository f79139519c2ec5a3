"""A result is a number, a table, a picture and a page: what every verb returns, and how it is kept on disk."""

from __future__ import annotations

import importlib
import json
import math
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from safetensors.numpy import load_file, save_file

from headscan.errors import BadInput
from headscan.run.result import Result as RunResult

__all__ = ["Result", "check_writable", "load", "write_aside"]

# Where each kind of result is defined; imported by name, when a saved one is loaded.
HOMES = {
    "scan": "headscan.geometry",
    "ntp": "headscan.ntp",
    "invert": "headscan.inversion",
    "privacy": "headscan.inversion",
    "attribute": "headscan.attribution",
    "flow": "headscan.flow",
    "channel": "headscan.flow",
    "train": "headscan.training.result",
    "recover": "headscan.training.result",
    "evaluation": "headscan.training.result",
    "reproduce": "headscan.claims.ledger",
}


# Results whose fields are typed (`headscan.run.Result`), by their class.
TYPED = {"invert": "InvertResult", "privacy": "PrivacyResult"}


def check_writable(folder: str | os.PathLike) -> Path:
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
    except OSError as error:
        raise BadInput(f"The output folder {path} cannot be written: {error.strerror}.") from None
    return path


def write_aside(path: Path, data: bytes | str) -> None:
    """Write a file aside and rename it: whoever looks sees the old file or the whole new one, never a half."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _plain(value: Any) -> Any:
    """JSON-able, with NaN and infinities as null: standard JSON has no word for them."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Path):
        return str(value)
    return value


@dataclass(frozen=True, repr=False)
class Result:
    """What a verb found: `document` (JSON-able: numbers, words, protocol) and `arrays` (named numpy arrays).

    Subclasses set `kind` and add typed views. `report.html`, plots and the notebook view come from the functions
    `KIND_page`, `KIND_plot` and `KIND_table` of `headscan.report`, which read `document` and `arrays` and nothing else.
    """

    document: dict[str, Any]
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    kind: ClassVar[str] = ""
    registry: ClassVar[dict[str, type[Result]]] = {}

    def __init_subclass__(cls) -> None:
        Result.registry[cls.kind] = cls

    def __post_init__(self) -> None:
        object.__setattr__(self, "document", _plain({"kind": self.kind} | self.document))

    def frame(self):
        """The result as a pandas table, one row an entry."""
        raise NotImplementedError

    def plot(self, *arguments: Any, **options: Any):
        """The result as a plotly figure."""
        return self._report("plot")(self.document, self.arrays, *arguments, **options)

    def page(self) -> str:
        """The result as one self-contained HTML page."""
        return self._report("page")(self.document, self.arrays)

    def table(self):
        """The result as a `rich` table for the terminal."""
        return self._report("table")(self.document)

    def _report(self, what: str):
        # Imported here and not above: a result can be made, saved and loaded without plotting libraries in memory.
        return getattr(importlib.import_module("headscan.report"), f"{self.kind}_{what}")

    def _repr_html_(self) -> str:
        return self.frame().to_html()

    def __repr__(self) -> str:
        return f"{self.frame()}\n{type(self).__name__}: .frame() .plot() .page() .save(folder)"

    def json(self) -> str:
        """`document` as JSON text."""
        return json.dumps(self.document, ensure_ascii=False, indent=1, allow_nan=False)

    def save(self, folder: str | os.PathLike) -> Path:
        """Write arrays.safetensors, report.html and, last, result.json into a folder; each whole or not at all.

        Raises BadInput where the folder cannot be written.
        """
        path = check_writable(folder)
        page = self.page()
        if self.arrays:
            handle, aside = tempfile.mkstemp(dir=path, prefix=".arrays.")
            os.close(handle)
            save_file({name: np.ascontiguousarray(array) for name, array in self.arrays.items()}, aside)
            os.chmod(aside, 0o666 & ~_umask())
            os.replace(aside, path / "arrays.safetensors")
        else:
            (path / "arrays.safetensors").unlink(missing_ok=True)
        write_aside(path / "report.html", page)
        write_aside(path / "result.json", self.json())
        return path

    @classmethod
    def load(cls, folder: str | os.PathLike) -> Self:
        """The result that `save` wrote."""
        result = load(folder)
        if not isinstance(result, cls):
            raise BadInput(f"{folder} holds a result of the verb '{result.kind}', not '{cls.kind}'.")
        return result


def load(folder: str | os.PathLike) -> Result | RunResult:
    """Load any saved result from its folder; BadInput where there is none."""
    path = Path(folder)
    try:
        document = json.loads((path / "result.json").read_text())
    except (OSError, ValueError):
        raise BadInput(f"{folder} holds no readable result.json.") from None
    arrays = load_file(path / "arrays.safetensors") if (path / "arrays.safetensors").exists() else {}
    kind = document.get("kind")
    if kind in TYPED:
        found: Any = getattr(importlib.import_module(HOMES[kind]), TYPED[kind]).load(path)
        return found
    if kind in HOMES:
        importlib.import_module(HOMES[kind])  # a kind is known once the module that defines it is
    for one in RunResult.__subclasses__():
        if one.kind == kind:
            return one.load(folder)
    if kind not in Result.registry:
        raise BadInput(f"{folder} holds a result of an unknown kind: {kind!r}.")
    return Result.registry[kind](document, arrays)
