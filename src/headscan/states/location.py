"""Where stored states are: local paths, the URLs that fsspec reads, and what sites are called in
other libraries.
"""

import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from headscan.run import BadInput
from headscan.run.files import leads_out


@dataclass(frozen=True)
class Location:
    """A file or folder, local or at a URL (s3://, hf://datasets/..., memory://...). Methods raise
    BadInput where it cannot be read.

    >>> import tempfile
    >>> here = Location(tempfile.mkdtemp())
    >>> here.is_folder, here.files(), (here / "a.npy").suffix
    (True, [], '.npy')
    """

    path: str

    def __truediv__(self, name: str) -> "Location":
        return Location(f"{self.path.rstrip('/')}/{name}")

    def inside(self, name: str) -> "Location":
        """A file that a description in this folder names; BadInput for a name that leads out of the
        folder.
        """
        if (
            "://" in name
            or "\\" in name
            or "\0" in name
            or name.startswith(("/", "~"))
            or ".." in PurePosixPath(name).parts
        ):
            raise BadInput(
                f"{self.path} names a file outside it, '{name}': headscan reads none such."
            )
        if not self.remote and leads_out(Path(self.path), Path(self.path) / name):
            raise BadInput(
                f"{self.path} holds a link that leads out of it, '{name}': headscan follows none "
                "such."
            )
        return self / name

    @property
    def remote(self) -> bool:
        return "://" in self.path

    @property
    def name(self) -> str:
        return PurePosixPath(self.path.rstrip("/")).name

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.path).suffix.lower()

    @cached_property
    def _system(self) -> tuple[Any, str]:
        import fsspec

        try:
            system, _, (path, *_) = fsspec.get_fs_token_paths(self.path)
        except Exception as error:  # each file system has its own
            raise self.fault(error) from error
        return system, path

    def fault(self, error: BaseException) -> BadInput:
        """A failure to read it, in one sentence."""
        reason = " ".join(str(error).split()) or type(error).__name__
        return BadInput(f"{self.path} cannot be read: {reason[:200].rstrip('.')}.")

    @property
    def exists(self) -> bool:
        if not self.remote:
            return Path(self.path).exists()
        system, path = self._system
        try:
            return bool(system.exists(path))
        except Exception as error:
            raise self.fault(error) from error

    @property
    def is_folder(self) -> bool:
        return (
            bool(self._system[0].isdir(self._system[1]))
            if self.remote
            else Path(self.path).is_dir()
        )

    def files(self, ending: str = "") -> "list[Location]":
        """The files in the folder and in its folders that end so, by name; hidden ones are passed
        over.
        """
        if self.remote:
            system, path = self._system
            names = [str(file)[len(str(path).rstrip("/")) + 1 :] for file in system.find(path)]
        else:  # a link that leads nowhere is no file
            every = (
                os.path.join(folder, name)
                for folder, _, names in os.walk(self.path)
                for name in names
            )
            ours = (file for file in every if file.endswith(ending) and os.path.isfile(file))
            names = [Path(file).relative_to(self.path).as_posix() for file in ours]
        return [
            self.inside(name)
            for name in sorted(names)
            if name.endswith(ending) and not name.startswith(".")
        ]

    def folders(self, ending: str) -> "dict[str, list[Location]]":
        """The files that end so, by the path of their folder."""
        folders = dict[str, list[Location]]()
        for file in self.files(ending):
            folders.setdefault(file.path.rsplit("/", 1)[0], []).append(file)
        return dict(sorted(folders.items()))

    @property
    def size(self) -> int:
        """Bytes of the file."""
        try:
            return (
                int(self._system[0].size(self._system[1]))
                if self.remote
                else Path(self.path).stat().st_size
            )
        except OSError as error:
            raise self.fault(error) from error

    def bytes(self, start: int, end: int) -> bytes:
        """The bytes from start to end, fewer where the file ends before."""
        try:
            if self.remote:
                return bytes(self._system[0].cat_file(self._system[1], start=start, end=end))
            with open(self.path, "rb") as file:
                file.seek(start)
                return file.read(end - start)
        except OSError as error:
            raise self.fault(error) from error

    def open(self) -> Any:
        """The file, open for reading bytes."""
        try:
            return (
                self._system[0].open(self._system[1], "rb")
                if self.remote
                else open(self.path, "rb")
            )
        except OSError as error:
            raise self.fault(error) from error

    def json(self) -> dict[str, object]:
        """The JSON object in the file."""
        try:
            content = json.loads(self.bytes(0, self.size))
        except (ValueError, RecursionError) as error:
            raise BadInput(
                f"{self.path} is no JSON: it is damaged, or of another format."
            ) from error
        if not isinstance(content, dict):
            raise BadInput(f"{self.path} is no JSON object.")
        return content


PARTS = {"attn_out": ".attention", "mlp_out": ".mlp", "resid_post": ""}


def site_of_hook(hook: str) -> str:
    """headscan's name of a hook of TransformerLens (also used by SAELens and activault); itself
    where there is none.

    >>> [site_of_hook(f"blocks.4.hook_{name}") for name in ("resid_post", "resid_pre", "mlp_out", "resid_mid")]
    ['block.4', 'block.3', 'block.4.mlp', 'blocks.4.hook_resid_mid']
    >>> site_of_hook("blocks.0.hook_resid_pre"), site_of_hook("ln_final.hook_normalized")
    ('embedding', 'final_norm')
    """
    if hook == "ln_final.hook_normalized":
        return "final_norm"
    if (match := re.fullmatch(r"blocks\.(\d+)\.hook_(\w+)", hook)) is None:
        return hook
    block = int(match[1])
    kind = match[2]
    if kind == "resid_pre":
        return f"block.{block - 1}" if block else "embedding"
    return f"block.{block}{PARTS[kind]}" if kind in PARTS else hook


def by_depth(names: Iterable[str]) -> list[str]:
    """Names in the order of depth: embedding, blocks by their numbers with their branches before
    them, final norm, head; others by the numbers in them.

    >>> by_depth(["head", "block.10", "block.2", "block.2.mlp", "final_norm", "embedding"])
    ['embedding', 'block.2.mlp', 'block.2', 'block.10', 'final_norm', 'head']
    """

    def key(name: str) -> tuple[object, ...]:
        stack = name.partition(".")[0]
        bare = name.removeprefix("encoder.").removeprefix("decoder.")
        kind = {"embedding": 0, "final_norm": 3, "head": 4}.get(
            bare, 1 if bare.startswith("block.") else 2
        )
        numbers = [int(part) if part.isdigit() else -1 for part in re.split(r"(\d+)", bare)]
        return stack == "decoder" or kind == 4, kind, numbers[:2], -bare.count("."), numbers, bare

    return sorted(names, key=key)
