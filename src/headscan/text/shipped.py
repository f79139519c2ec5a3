"""The texts that come with headscan, and one that comes with Python itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from headscan.run.errors import BadInput

__all__ = ["embedded", "embedded_names", "python_help"]

FOLDER = Path(__file__).parent / "embedded"
PYTHON_HELP = "pydoc"


def embedded_names() -> tuple[str, ...]:
    """Names that stand for a text wherever a text is asked for, in alphabetical order.

    Every `NAME.txt` of the package's folder `text/embedded` is one; `pydoc` is the text of Python's own `help()`.
    The shipped texts are plain paragraphs: one document (a story) is one paragraph without a blank line inside, and
    documents are separated by one blank line, so that `documents="paragraphs"` gives one document a story.

    >>> "pydoc" in embedded_names()
    True
    """
    return tuple(sorted({path.stem for path in FOLDER.glob("*.txt")} | {PYTHON_HELP}))


def embedded(name: str) -> Path:
    """The path of a text shipped in the package.

    Raises:
        BadInput: there is none of that name (`pydoc` has no file: `documents("pydoc")` reads it).
    """
    path = FOLDER / f"{name}.txt"
    if name not in embedded_names() or not path.is_file():
        raise BadInput(f"There is no embedded text file {name!r}; there are: {', '.join(embedded_names())}.")
    return path


def python_help() -> Iterator[str]:
    """The help topics that Python ships, in alphabetical order, a blank line between two.

    The text differs from one Python version to the next; the SHA-256 in the protocol of a run tells which it was.

    >>> sum(map(len, python_help())) > 300_000
    True
    """
    from pydoc_data.topics import topics

    for count, name in enumerate(sorted(topics)):
        yield ("\n\n" if count else "") + topics[name].strip("\n")
