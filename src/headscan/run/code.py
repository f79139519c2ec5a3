"""Hashes of the code that computes: headscan's own and that of installed plug-ins."""

import hashlib
import os
from collections.abc import Iterator
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

GROUPS = ("headscan.plugins", "headscan.verbs", "headscan.results")
SUFFIXES = (".py", ".json", ".tsv")
"""Code, and the tables that it reads."""
MODELS = "specimens"
"""The folder of the embedded models, which are hashed as any other model."""


@cache
def code_hashes() -> dict[str, str]:
    """Return {package: hash of its files}, once a process.

    A run that is resumed with other code would mix the numbers of two programs.
    """
    packages = {"headscan"}
    installed = entry_points()  # once, as it reads the metadata of all packages
    for group in GROUPS:
        packages |= {entry.module.partition(".")[0] for entry in installed.select(group=group)}
    return {package: _package_hash(package) for package in sorted(packages)}


def _package_hash(package: str) -> str:
    digest = hashlib.sha256()
    for name, path in _files(package):
        with open(path, "rb") as file:
            content = file.read()
        digest.update(f"{len(name)} {name} {len(content)} ".encode("utf-8", "surrogateescape"))
        digest.update(content)
    return digest.hexdigest()


def _files(package: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the path of each file, in the order of their names."""
    try:
        spec = find_spec(package)
    except ValueError:  # a module that was made while the program ran
        return
    if spec is None:
        return
    if spec.submodule_search_locations is None:
        if spec.has_location and spec.origin is not None:
            yield Path(spec.origin).name, spec.origin
        return
    for root in spec.submodule_search_locations:
        for folder, inner, names in os.walk(root):
            inner[:] = sorted(set(inner) - {"__pycache__", MODELS})
            for name in sorted(names):
                if name.endswith(SUFFIXES):
                    path = os.path.join(folder, name)
                    yield os.path.relpath(path, root), path
