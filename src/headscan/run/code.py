"""Hashes of the code that computes: headscan's own and that of installed plug-ins."""

import hashlib
import os
from collections.abc import Iterator
from functools import cache
from importlib.metadata import EntryPoints, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

GROUPS = ("headscan.plugins", "headscan.verbs", "headscan.results")
SUFFIXES = (".py", ".json", ".tsv")
"""Code, and the tables that it reads."""
MODELS = "specimens"
"""The folder of the embedded models, which are hashed as any other model."""


@cache
def _entry_points() -> Any:
    """Return the entry points of all packages; reading them takes milliseconds."""
    return entry_points()


def plugins(group: str) -> EntryPoints:
    """Return the entry points of a group, of all installed packages."""
    selected: EntryPoints = _entry_points().select(group=group)
    return selected


@cache
def code_hashes() -> dict[str, str]:
    """Return {package: hash of its files}, once a process.

    A run that is resumed with other code would mix the numbers of two programs.
    """
    packages = {"headscan"}
    for group in GROUPS:
        packages |= {entry.module.partition(".")[0] for entry in plugins(group)}
    return {package: _package_hash(package) for package in sorted(packages)}


def _package_hash(package: str) -> str:
    digest = hashlib.sha256()
    for name, path in _files(package):
        with open(path, "rb", buffering=0) as file:
            content = file.read()
        digest.update(f"{len(name)} {name} {len(content)} ".encode("utf-8", "surrogateescape"))
        digest.update(content)
    return digest.hexdigest()


def _files(package: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the path of each file, in an order that is always the same."""
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
        yield from _files_inside(root, "")


def _files_inside(folder: str, prefix: str) -> Iterator[tuple[str, str]]:
    with os.scandir(folder) as listed:
        entries = sorted(listed, key=lambda entry: entry.name)
    for entry in entries:
        name = f"{prefix}{entry.name}"
        if entry.is_dir():
            if entry.name not in ("__pycache__", MODELS):
                yield from _files_inside(entry.path, f"{name}/")
        elif entry.name.endswith(SUFFIXES):
            yield name, entry.path
