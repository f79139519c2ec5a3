"""The tiny models that ship inside the package: one folder each, in the layout of `save_pretrained`.

`pip install headscan` brings `gpt-vanilla`, and `pip install 'headscan[specimens]'` the others, into the same folder.
"""

from __future__ import annotations

from pathlib import Path

from headscan.run import BadInput

__all__ = ["OTHERS", "specimen_path", "specimens"]

FOLDER = Path(__file__).parent / "specimens"
OTHERS = ("gpt-headless", "gpt-headless-early", "gpt-vanilla-early")  # what packaging/specimens makes a package of


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
        BadInput: there is no such specimen, and the message lists those there are; or it is in a package of its own.
    """
    if name not in specimens():
        if name in OTHERS:
            raise BadInput(f"The specimen '{name}' is not installed: pip install 'headscan[specimens]'.")
        listed = ", ".join(specimens()) or "none in this installation"
        raise BadInput(f"There is no embedded specimen '{name}' (there are: {listed}).")
    return FOLDER / name
