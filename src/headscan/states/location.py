"""Where stored states are: local paths and the URLs that fsspec reads."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from headscan.run import BadInput


@dataclass(frozen=True)
class Location:
    """A file or folder, local or at a URL (s3://, hf://datasets/..., memory://...).

    >>> import tempfile
    >>> here = Location(tempfile.mkdtemp())
    >>> here.is_folder, here.files(), (here / "a.npy").suffix
    (True, [], '.npy')
    """

    path: str

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

    def __truediv__(self, name: str) -> Location:
        return Location(f"{self.path.rstrip('/')}/{name}")

    def fault(self, error: BaseException) -> BadInput:
        """A failure to read it, in one sentence."""
        said = " ".join(str(error).split()) or type(error).__name__
        return BadInput(f"{self.path} cannot be read: {said[:200].rstrip('.')}.")

    @property
    def exists(self) -> bool:
        """Whether there is anything."""
        if not self.remote:
            return Path(self.path).exists()
        system, path = self._system
        try:
            return bool(system.exists(path))
        except Exception as error:
            raise self.fault(error) from error

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder."""
        if not self.remote:
            return Path(self.path).is_dir()
        system, path = self._system
        return bool(system.isdir(path))

    def files(self, ending: str = "") -> list[Location]:
        """The files in the folder that end so, by name; those in its folders too."""
        if not self.remote:
            every = (os.path.join(folder, name) for folder, _, names in os.walk(self.path) for name in names)
            ours = filter(
                os.path.isfile, (name for name in every if name.endswith(ending))
            )  # one not to be seen is none
            found = [Path(name).relative_to(self.path).as_posix() for name in ours]
        else:
            system, path = self._system
            found = [str(one)[len(str(path).rstrip("/")) + 1 :] for one in system.find(path)]
        return [self / name for name in sorted(found) if name.endswith(ending) and not name.startswith(".")]

    @property
    def size(self) -> int:
        """Bytes of the file."""
        try:
            return Path(self.path).stat().st_size if not self.remote else int(self._system[0].size(self._system[1]))
        except OSError as error:
            raise self.fault(error) from error

    def bytes(self, start: int, end: int) -> bytes:
        """The bytes from start to end, fewer where the file ends before."""
        try:
            if not self.remote:
                with open(self.path, "rb") as file:
                    file.seek(start)
                    return file.read(end - start)
            return bytes(self._system[0].cat_file(self._system[1], start=start, end=end))
        except OSError as error:
            raise self.fault(error) from error

    def open(self) -> Any:
        """The file, open for reading bytes."""
        try:
            return open(self.path, "rb") if not self.remote else self._system[0].open(self._system[1], "rb")
        except OSError as error:
            raise self.fault(error) from error

    def json(self) -> dict[str, object]:
        """The JSON object in the file.

        Raises:
            BadInput: it is none.
        """
        try:
            found = json.loads(self.bytes(0, self.size))
        except ValueError as error:
            raise BadInput(f"{self.path} is no JSON: it is damaged, or of another format.") from error
        if not isinstance(found, dict):
            raise BadInput(f"{self.path} is no JSON object.")
        return found


# ---- What sites are called: names of other libraries' hooks as headscan's, and names in the order of depth.

PARTS = {"attn_out": ".attention", "mlp_out": ".mlp", "resid_post": ""}


def site_of_hook(hook: str) -> str:
    """headscan's name of a hook of TransformerLens (also used by SAELens and activault); itself where there is none.

    >>> [site_of_hook(f"blocks.4.hook_{name}") for name in ("resid_post", "resid_pre", "mlp_out", "resid_mid")]
    ['block.4', 'block.3', 'block.4.mlp', 'blocks.4.hook_resid_mid']
    >>> site_of_hook("blocks.0.hook_resid_pre"), site_of_hook("ln_final.hook_normalized")
    ('embedding', 'final_norm')
    """
    if hook == "ln_final.hook_normalized":
        return "final_norm"
    found = re.fullmatch(r"blocks\.(\d+)\.hook_(\w+)", hook)
    if found is None:
        return hook
    block, kind = int(found[1]), found[2]
    if kind == "resid_pre":
        return f"block.{block - 1}" if block else "embedding"
    return f"block.{block}{PARTS[kind]}" if kind in PARTS else hook


def by_depth(names: Iterable[str]) -> list[str]:
    """Names in the order of depth: embedding, blocks by their numbers with their branches before them, final norm, head;
    others by the numbers in them.

    >>> by_depth(["head", "block.10", "block.2", "block.2.mlp", "final_norm", "embedding"])
    ['embedding', 'block.2.mlp', 'block.2', 'block.10', 'final_norm', 'head']
    """

    def key(name: str) -> tuple[object, ...]:
        stack = name.partition(".")[0]
        bare = name.removeprefix("encoder.").removeprefix("decoder.")
        kind = {"embedding": 0, "final_norm": 3, "head": 4}.get(bare, 1 if bare.startswith("block.") else 2)
        numbers = [int(part) if part.isdigit() else -1 for part in re.split(r"(\d+)", bare)]
        return stack == "decoder" or kind == 4, kind, numbers[:2], -bare.count("."), numbers, bare

    return sorted(names, key=key)
