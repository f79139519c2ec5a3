"""The places of stored states (local paths and the URLs that fsspec reads), and the names of sites
in other libraries.
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

PATIENCE = 60.0
"""Seconds that a server of HTTP may be silent."""


def _http_options() -> dict[str, Any]:
    """Return the options of the file system for HTTP: a limit of time for silent servers."""
    from aiohttp import ClientTimeout

    timeout = ClientTimeout(total=None, sock_connect=PATIENCE, sock_read=PATIENCE)
    return {"client_kwargs": {"timeout": timeout}}


@dataclass(frozen=True)
class Location:
    """A file or folder, local or at a URL (s3://, hf://datasets/..., memory://...).

    Methods raise BadInput where it cannot be read.

    >>> import tempfile
    >>> folder = Location(tempfile.mkdtemp())
    >>> folder.is_folder, folder.files(), (folder / "a.npy").suffix
    (True, [], '.npy')
    """

    path: str

    def __truediv__(self, name: str) -> "Location":
        return Location(f"{self.path.rstrip('/')}/{name}")

    def inside(self, name: str) -> "Location":
        """Return a file that a description in this folder names.

        Raises BadInput for a name that leads out of the folder.
        """
        foreign = "://" in name or "\\" in name or "\0" in name
        if foreign or name.startswith(("/", "~")) or ".." in PurePosixPath(name).parts:
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
        """Return whether it is a URL."""
        return "://" in self.path

    @property
    def name(self) -> str:
        """Return the last part of the path."""
        return PurePosixPath(self.path.rstrip("/")).name

    @property
    def suffix(self) -> str:
        """Return the ending of the name in lower case, such as '.npy'."""
        return PurePosixPath(self.path).suffix.lower()

    @cached_property
    def _system(self) -> tuple[Any, str]:
        """Return the file system of fsspec for a URL, and the path in it."""
        import fsspec

        try:
            options = _http_options() if self._over_http else {}
            system, _, (path, *_) = fsspec.get_fs_token_paths(self.path, storage_options=options)
        except Exception as error:  # each file system has exceptions of its own
            raise self.fault(error) from error
        return system, path

    @property
    def _over_http(self) -> bool:
        return self.path.startswith(("http://", "https://"))

    @cached_property
    def _parts(self) -> Any:
        """Return a file over HTTP that is read in parts, whatever more a server would send."""
        system, path = self._system
        return system.open(path, "rb")

    def fault(self, error: BaseException) -> BadInput:
        """Return a failure to read it as one sentence."""
        reason = " ".join(str(error).split()) or type(error).__name__
        return BadInput(f"{self.path} cannot be read: {reason[:200].rstrip('.')}.")

    @property
    def exists(self) -> bool:
        """Return whether there is a file or folder."""
        if not self.remote:
            return Path(self.path).exists()
        system, path = self._system
        try:
            return bool(system.exists(path))
        except Exception as error:
            raise self.fault(error) from error

    @property
    def is_folder(self) -> bool:
        """Return whether it is a folder; none is known over HTTP."""
        if not self.remote:
            return Path(self.path).is_dir()
        if self._over_http:  # fsspec reads all of a file to look for links in it
            return False
        system, path = self._system
        return bool(system.isdir(path))

    def files(self, ending: str = "") -> "list[Location]":
        """Return the files with an ending in the folder and below it, without hidden ones."""
        files = []
        for name in sorted(self._names(ending)):
            if name.endswith(ending) and not name.startswith("."):
                files.append(self.inside(name))
        return files

    def _names(self, ending: str) -> list[str]:
        """Return the paths of files below the folder, relative to it."""
        if self.remote:
            system, path = self._system
            start = len(str(path).rstrip("/")) + 1
            return [str(file)[start:] for file in system.find(path)]
        names = []
        for folder, _, files in os.walk(self.path):
            for file in files:
                path = os.path.join(folder, file)
                if file.endswith(ending) and os.path.isfile(path):  # else a link that leads nowhere
                    names.append(Path(path).relative_to(self.path).as_posix())
        return names

    def folders(self, ending: str) -> "dict[str, list[Location]]":
        """Return the files with an ending, by the path of their folder."""
        folders: dict[str, list[Location]] = {}
        for file in self.files(ending):
            folder = file.path.rsplit("/", 1)[0]
            folders.setdefault(folder, []).append(file)
        return dict(sorted(folders.items()))

    @property
    def size(self) -> int:
        """Return the bytes of the file."""
        try:
            if not self.remote:
                return Path(self.path).stat().st_size
            system, path = self._system
            size = system.size(path)
        except OSError as error:
            raise self.fault(error) from error
        if size is None:
            raise BadInput(f"{self.path} cannot be read: its server does not say how large it is.")
        return int(size)

    def bytes(self, start: int, end: int) -> bytes:
        """Return the bytes from start to end, fewer where the file ends before."""
        try:
            if self._over_http:
                self._parts.seek(start)
                return bytes(self._parts.read(end - start))
            if self.remote:
                system, path = self._system
                return bytes(system.cat_file(path, start=start, end=end))
            with open(self.path, "rb") as file:
                file.seek(start)
                return file.read(end - start)
        except (OSError, ValueError) as error:  # ValueError: a server that sends whole files
            raise self.fault(error) from error

    def open(self) -> Any:
        """Return the file, open for reading bytes."""
        try:
            if not self.remote:
                return open(self.path, "rb")
            system, path = self._system
            return system.open(path, "rb")
        except OSError as error:
            raise self.fault(error) from error

    def json(self) -> dict[str, object]:
        """Return the JSON object in the file."""
        try:
            content = json.loads(self.bytes(0, self.size))
        except (ValueError, RecursionError) as error:
            raise BadInput(
                f"{self.path} is no JSON: it is damaged, or of another format."
            ) from error
        if not isinstance(content, dict):
            raise BadInput(f"{self.path} is no JSON object.")
        return content


BRANCHES_OF_HOOKS = {"attn_out": ".attention", "mlp_out": ".mlp", "resid_post": ""}


def site_of_hook(hook: str) -> str:
    """Return headscan's name of a hook of TransformerLens; the hook itself where there is none.

    SAELens and activault use these names, too.

    >>> [site_of_hook(f"blocks.4.hook_{name}") for name in ("resid_post", "resid_pre", "mlp_out")]
    ['block.4', 'block.3', 'block.4.mlp']
    >>> site_of_hook("blocks.4.hook_resid_mid")
    'blocks.4.hook_resid_mid'
    >>> site_of_hook("blocks.0.hook_resid_pre"), site_of_hook("ln_final.hook_normalized")
    ('embedding', 'final_norm')
    """
    if hook == "ln_final.hook_normalized":
        return "final_norm"
    match = re.fullmatch(r"blocks\.(\d+)\.hook_(\w+)", hook)
    if match is None:
        return hook
    block = int(match[1])
    kind = match[2]
    if kind == "resid_pre":
        return f"block.{block - 1}" if block else "embedding"
    if kind not in BRANCHES_OF_HOOKS:
        return hook
    return f"block.{block}{BRANCHES_OF_HOOKS[kind]}"


RANKS = {"embedding": 0, "final_norm": 3, "head": 4}
BLOCK_RANK = 1
OTHER_RANK = 2
"""The order of sites within a stack of blocks."""


def by_depth(names: Iterable[str]) -> list[str]:
    """Return names of sites in the order of depth.

    The order is embedding, blocks by their numbers with their branches before them, other names by
    the numbers in them, final norm, head.

    >>> by_depth(["head", "block.10", "block.2", "block.2.mlp", "final_norm", "embedding"])
    ['embedding', 'block.2.mlp', 'block.2', 'block.10', 'final_norm', 'head']
    """
    return sorted(names, key=_depth)


def _depth(name: str) -> tuple[object, ...]:
    """Return the key by which names are sorted in the order of depth."""
    stack = name.partition(".")[0]
    bare_name = name.removeprefix("encoder.").removeprefix("decoder.")
    is_block = bare_name.startswith("block.")
    rank = RANKS.get(bare_name, BLOCK_RANK if is_block else OTHER_RANK)
    numbers = [int(part) if part.isdigit() else -1 for part in re.split(r"(\d+)", bare_name)]
    in_second_stack = stack == "decoder" or bare_name == "head"
    branch_depth = bare_name.count(".")
    return in_second_stack, rank, numbers[:2], -branch_depth, numbers, bare_name
