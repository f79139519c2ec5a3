"""What stands for a text: a file, a folder, a stream, a name, or the text itself; found and checked before it is read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from headscan.run.errors import BadInput
from headscan.text.reading import PACKINGS, check_packing
from headscan.text.shipped import PYTHON_HELP, embedded, embedded_names

__all__ = ["FORMATS", "TextLike", "check_text", "ending", "find_files", "is_text", "source_name"]

TextLike = str | os.PathLike[str] | Sequence[str]
"""A file (.txt, .jsonl, .parquet, also .gz or .zst), a folder, "-", the name of an embedded text, a `datasets` id, or text.

A list of strings holds texts. A string is the text itself if it has a line break, or is longer than a file's name can be
(255 bytes) and is no path either.
"""
FORMATS = (".txt", ".jsonl", ".parquet")
LONGEST_NAME = 255  # bytes, on every file system in use


def is_text(source: TextLike) -> bool:
    """Whether a source is the text itself, not the name of one.

    >>> is_text("hens"), is_text("hens\\nand hens"), is_text("hens and hens " * 30), is_text(["hens"])
    (False, True, True, True)
    """
    if not isinstance(source, str):
        return not isinstance(source, os.PathLike)
    if "\n" in source or "\r" in source:
        return True
    data = os.fsencode(source) if "\0" not in source else b""
    if len(data) <= LONGEST_NAME:
        return not data and bool(source)
    # A path may be longer, in several names; what people write has spaces.
    return any(len(part) > LONGEST_NAME for part in data.split(b"/")) or (b" " in data and not os.path.exists(source))


def source_name(source: TextLike) -> str:
    """What a source is called in sentences and protocols."""
    if is_text(source):
        return "<text>" if isinstance(source, str) else "<list>"
    return os.fspath(source)  # type: ignore[arg-type]


def find_files(source: str | os.PathLike[str]) -> list[Path] | None:
    """The files of a source that is named: its own, those of a folder, that of an embedded text; None for other names.

    Raises:
        BadInput: nothing is named, the name is not UTF-8, a path leads nowhere, or a folder or file holds no text.
    """
    name = os.fspath(source)
    _check_name(name)
    if not name:
        raise BadInput("There is nothing to read: the name of a text is empty.")
    path = Path(name).expanduser()
    if path.is_dir():
        return _in_folder(path)
    if path.exists():
        if ending(path) not in FORMATS:
            raise BadInput(f"{path} has an unknown ending; a text file ends in {_known()}.")
        return [path]
    if name in embedded_names() and name != PYTHON_HELP:
        return [embedded(name)]
    if name != PYTHON_HELP and (isinstance(source, os.PathLike) or _is_path(name)):
        raise BadInput(f"There is no file or folder {name}.")
    return None


def check_text(source: TextLike) -> None:
    """Raise BadInput for what can be known of a text without reading it all; verbs call it before any other work.

    >>> check_text("no/such/file.txt")
    Traceback (most recent call last):
    headscan.BadInput: There is no file or folder no/such/file.txt.
    """
    if not isinstance(source, str | os.PathLike):
        if not isinstance(source, Sequence) or not all(isinstance(text, str) for text in source):
            raise BadInput("A text is a file, a folder, a name, a string, or a list of strings.")
        return
    if is_text(source) or os.fspath(source) == "-":
        return
    for path in find_files(source) or ():
        if not os.access(path, os.R_OK):
            raise BadInput(f"{path} cannot be read: Permission denied.")
        check_packing(path)


def ending(path: Path) -> str:
    """The ending that says what a file holds, without that of its packing: '.txt' of 'a.txt.gz'."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in PACKINGS:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def _check_name(name: str) -> None:
    # Names come from the system with stray bytes as lone surrogates, which neither JSON nor a page can hold.
    try:
        name.encode()
    except UnicodeEncodeError:
        shown = os.fsencode(name).decode("utf-8", "backslashreplace")
        raise BadInput(f"The name of the file {shown} is not UTF-8: rename it.") from None


def _is_path(name: str) -> bool:
    """Whether a missing source was meant as a path, not as the id (`name` or `owner/name`) of a dataset."""
    return (
        ending(Path(name)) in FORMATS
        or Path(name).suffix in PACKINGS
        or name.startswith((".", "/", "~"))
        or "\\" in name
        or name.count("/") > 1
    )


def _in_folder(folder: Path) -> list[Path]:
    found = []
    for place, folders, names in os.walk(folder):  # what may not be looked into is passed over
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths = (Path(place, name) for name in names if not name.startswith("."))
        found += [path for path in paths if ending(path) in FORMATS and os.path.isfile(path)]
    if not found:
        raise BadInput(f"The folder {folder} holds no text: no file ends in {_known()}.")
    for path in found:
        _check_name(str(path))
    return sorted(found, key=lambda path: path.relative_to(folder).as_posix())


def _known() -> str:
    return f"{', '.join(FORMATS)} (or these with {' or '.join(PACKINGS)})"
