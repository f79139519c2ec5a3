"""The tiny models that ship inside the package: one folder each, in the layout of `save_pretrained`."""

from __future__ import annotations

from pathlib import Path

from headscan.run import BadInput

__all__ = ["specimen_path", "specimens"]

FOLDER = Path(__file__).parent / "specimens"


def specimens() -> tuple[str, ...]:
    """The names of the embedded models, in alphabetical order: every folder that has a `config.json`.

    >>> isinstance(specimens(), tuple)
    True
    """
    if not FOLDER.is_dir():
        return ()
    return tuple(sorted(folder.name for folder in FOLDER.iterdir() if (folder / "config.json").is_file()))


def specimen_path(name: str) -> Path:
    """The folder of the embedded model `name`.

    Raises:
        BadInput: there is no such specimen; the message lists those there are.
    """
    if name not in specimens():
        listed = ", ".join(specimens()) or "none in this installation"
        raise BadInput(f"There is no embedded specimen '{name}' (there are: {listed}).")
    return FOLDER / name
