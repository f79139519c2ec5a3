"""What stands for a text: a file, a folder, a stream, a name, or the text itself; found and checked
before it is read.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from typing_extensions import TypeAliasType

from headscan.run import Option, Settings
from headscan.run.errors import BadInput, nearest
from headscan.run.spark import MASTER, check_engine
from headscan.text.reading import PACKINGS, check_packing

# ---- The texts that come with headscan, and one that comes with Python itself.

FOLDER = Path(__file__).parent / "embedded"
PYTHON_HELP = "pydoc"


def embedded_names() -> tuple[str, ...]:
    """Names that stand for a text: every `NAME.txt` of the package's folder `text/embedded`;
    `pydoc`, Python's own `help()`. In the shipped texts a document (a story) is one paragraph, so
    that `documents="paragraphs"` gives one document a story.
    """
    return tuple(sorted({path.stem for path in FOLDER.glob("*.txt")} | {PYTHON_HELP}))


def embedded(name: str) -> Path:
    """The path of a text shipped in the package; BadInput where there is none (`pydoc` has no
    file).
    """
    path = FOLDER / f"{name}.txt"
    if name not in embedded_names() or not path.is_file():
        raise BadInput(
            f"There is no embedded text file {name!r}; there are: {', '.join(embedded_names())}."
        )
    return path


def python_help() -> Iterator[str]:
    """The help topics that Python ships, in alphabetical order, a blank line between two. The text
    differs from one Python version to the next; the SHA-256 in the protocol of a run tells which it
    was.
    """
    from pydoc_data.topics import topics

    for count, name in enumerate(sorted(topics)):
        yield ("\n\n" if count else "") + topics[name].strip("\n")


TextLike = TypeAliasType("TextLike", str | os.PathLike[str] | Sequence[str])
"""A file (.txt, .jsonl, .parquet, also .gz or .zst), a folder, "-", the name of an embedded text, a
`datasets` id, or text.

A list of strings holds texts. A string is the text itself if it has a line break, or is longer than
a file's name can be (255 bytes) and is no path either.
"""
FORMATS = (".txt", ".jsonl", ".parquet")
LONGEST_NAME = 255  # bytes, on every file system in use


def is_text(source: TextLike) -> bool:
    """Whether a source is the text itself, not the name of one."""
    if not isinstance(source, str):
        return not isinstance(source, os.PathLike)
    if "\n" in source or "\r" in source:
        return True
    data = os.fsencode(source) if "\0" not in source else b""
    if len(data) <= LONGEST_NAME:
        return not data and bool(source)
    # A path may be longer, in several names; what people write has spaces.
    return any(len(part) > LONGEST_NAME for part in data.split(b"/")) or (
        b" " in data and not os.path.exists(source)
    )


def source_name(source: TextLike) -> str:
    """What a source is called in sentences and protocols."""
    if is_text(source):
        return "<text>" if isinstance(source, str) else "<list>"
    return os.fspath(source)  # type: ignore[arg-type]


def find_files(source: str | os.PathLike[str]) -> list[Path] | None:
    """The files of a source that is named: its own, those of a folder, that of an embedded text;
    None for other names.
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
        raise BadInput(f"There is no file or folder {name}.{nearest(name, embedded_names())}")
    return None


def check_text(source: TextLike) -> None:
    """Raise BadInput for what can be known of a text without reading it all; verbs call it before
    any other work.
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
    # Names come from the system with stray bytes as lone surrogates, which neither JSON nor a page
    # can hold.
    try:
        name.encode()
    except UnicodeEncodeError:
        shown = os.fsencode(name).decode("utf-8", "backslashreplace")
        raise BadInput(f"The name of the file {shown} is not UTF-8: rename it.") from None


def _is_path(name: str) -> bool:
    """Whether a missing source was meant as a path, not as the id (`name` or `owner/name`) of a
    dataset.
    """
    known = ending(Path(name)) in FORMATS or Path(name).suffix in PACKINGS
    return known or name.startswith((".", "/", "~")) or "\\" in name or name.count("/") > 1


def _in_folder(folder: Path) -> list[Path]:
    files = []
    for place, folders, names in os.walk(folder):  # what may not be looked into is passed over
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths = (Path(place, name) for name in names if not name.startswith("."))
        files += [path for path in paths if ending(path) in FORMATS and os.path.isfile(path)]
    if not files:
        raise BadInput(f"The folder {folder} holds no text: no file ends in {_known()}.")
    for path in files:
        _check_name(str(path))
    return sorted(files, key=lambda path: path.relative_to(folder).as_posix())


def _known() -> str:
    return f"{', '.join(FORMATS)} (or these with {' or '.join(PACKINGS)})"


# ---- Whether a text is the one that was read before: its content, hashed as it is read, and compared when it is read again.


@dataclass(frozen=True)
class TextMark:
    """How far a text was read, and the SHA-256 of what it said up to there."""

    documents: int
    characters: int
    sha256: str


class TextIdentity:
    """The SHA-256 of a text as it is read: its characters as UTF-8, the byte 0xFF (never in UTF-8)
    between two documents.

    So it is the file's own SHA-256 when the text is one .txt read whole as one document (without
    byte order mark). With `expected`, the mark of an earlier reading, the text is compared when the
    reading comes to that place again, however it falls into pieces: a text that changed before it
    is refused.
    """

    def __init__(self, name: str, expected: TextMark | None = None) -> None:
        self.name = name
        self._blank = True
        # of nothing read nothing can have changed
        self._expected = expected if expected and expected.documents else None
        self._read = 0, 0, hashlib.sha256()  # documents, characters, and what they said

    def add(self, text: str, *, begins: bool) -> None:
        """Read on; `begins` where a document begins with this piece. Where it is interrupted,
        nothing of the piece is read.
        """
        documents = self.documents
        characters = self.characters
        digest = self._read[2].copy()
        if begins:
            if documents:
                digest.update(b"\xff")
            documents += 1
        if (wanted := self._expected) is not None:
            missing = wanted.characters - characters
            if documents > wanted.documents or (
                len(text) > missing and documents < wanted.documents
            ):
                raise self._changed()
            if documents == wanted.documents and len(text) >= missing:
                head = digest.copy()
                head.update(text[:missing].encode())
                if head.hexdigest() != wanted.sha256:
                    raise self._changed()
                self._expected = None
        digest.update(text.encode())
        self._blank = self._blank and text.isspace()
        self._read = documents, characters + len(text), digest

    @property
    def documents(self) -> int:
        return self._read[0]

    @property
    def characters(self) -> int:
        return self._read[1]

    def mark(self) -> TextMark:
        """What was read up to now."""
        documents, characters, digest = self._read
        return TextMark(documents, characters, digest.hexdigest())

    def finish(self) -> None:
        """The reading has ended; BadInput where it never came as far as the reading before, or all
        was white space.
        """
        if self.characters and self._blank:
            raise BadInput(f"The text {self.name} is white space alone.")
        if self._expected is not None:
            raise self._changed()

    def _changed(self) -> BadInput:
        said = f"The text {self.name} has changed since the run that is to be resumed"
        return BadInput(f"{said}: start afresh without --resume.")


# ---- How texts are read and counted: the names, defaults and help of these options, for every verb that has them.

TEXT = Option(
    "A .txt, .jsonl or .parquet file (also .gz, .zst), a folder of them, - for standard input, a "
    "datasets id, or the name of an embedded text; in Python also the text itself, or a list of "
    "texts.",
    content=True,
    metavar="TEXT",
    group="Input",
)
"""What every verb says of its text."""

_UNITS = {
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
    "TIB": 2**40,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "B": 1,
    "": 1,
}


def parse_bytes(size: str | int) -> int:
    """Bytes from a number or a word such as "512MiB", "4GiB", "2GB"."""
    if isinstance(size, int):
        return size
    word = size.strip().upper()
    unit = next(unit for unit in _UNITS if word.endswith(unit))
    try:
        amount = int(float(word.removesuffix(unit)) * _UNITS[unit])
        if 0 < amount < 2**60:
            return amount
        raise ValueError
    except (ValueError, OverflowError):
        raise BadInput(
            f'"{size}" is no amount of memory; write for example 512MiB or 4GiB.'
        ) from None


# ---- The options of verbs that read a text; `Reading` has those of all.

Documents = TypeAliasType(
    "Documents",
    Annotated[
        str,
        Option(
            "How a .txt falls into documents: whole (a file is one), lines, paragraphs, or a separator.",
            group="Input",
        ),
    ],
)
FieldName = TypeAliasType(
    "FieldName",
    Annotated[
        str,
        Option(
            "The field of a .jsonl, .parquet or datasets row that is its document.", group="Input"
        ),
    ],
)
MaxTokens = TypeAliasType(
    "MaxTokens",
    Annotated[int | None, Option("Maximum number of tokens to read.", low=1, group="Limits")],
)
CONTEXT = 128
"""Tokens of a window where the option was not given, but of a sentence encoder."""
_CONTEXT_HELP = (
    "Tokens of a window; one window is one row of a forward pass. Default: 128; of a sentence "
    "encoder, which reads each document by itself, as many as its encode reads."
)
Context = TypeAliasType(
    "Context", Annotated[int | None, Option(_CONTEXT_HELP, low=1, group="Limits")]
)
SeveralTokensContext = TypeAliasType(
    "SeveralTokensContext", Annotated[int | None, Option(_CONTEXT_HELP, low=2, group="Limits")]
)
BatchSize = TypeAliasType(
    "BatchSize",
    Annotated[
        int | None,
        Option(
            "Windows of a forward pass. Default: about 2,048 tokens, 16,384 on a GPU.",
            low=1,
            high=2**20,
            group="Limits",
        ),
    ],
)


def window_length(context: int | None, longest: int | None = None) -> int:
    """Return the tokens of a window: `context` where it was given, else 128.

    `longest`: tokens that a sentence encoder's `encode` reads; a window has as many by default, and
    never more.

    >>> window_length(None), window_length(64), window_length(None, 256), window_length(300, 256)
    (128, 64, 256, 256)
    """
    if longest is None:
        return CONTEXT if context is None else context
    return longest if context is None else min(context, longest)


@dataclass(frozen=True, kw_only=True)
class Reading(Settings):
    """How a text falls into documents, and how much of it is read; see `headscan.text.documents`."""

    documents: Documents = "whole"
    field: FieldName = "text"
    max_tokens: MaxTokens = None

    def check(self) -> None:
        super().check()
        if not self.documents:
            raise BadInput(
                "--documents must be whole, lines, paragraphs or a separator that is not empty."
            )


@dataclass(frozen=True, kw_only=True)
class Windowing(Settings):
    """How tokens are cut into windows, and which positions count.

    Attributes:
        context: tokens of a window; None: 128, of a sentence encoder as many as its encode reads.
        skip_first: positions left out at the beginning of each window.
        batch: windows of a forward pass; None: about 2,048 tokens, 16,384 on a GPU.
    """

    context: Context = None
    skip_first: Annotated[
        int, Option("Positions left out at the beginning of each window.", low=0)
    ] = 0
    batch: BatchSize = None

    def check(self) -> None:
        """Raise BadInput where no position of a window of `context` tokens would count."""
        if self.context is not None and self.skip_first >= self.context:
            raise BadInput(
                f"--skip-first must leave at least one of the {self.context} positions of a "
                f"window, not {self.skip_first}."
            )


# ---- The options of verbs that count contexts; `Counting` has them all.

Order = TypeAliasType(
    "Order", Annotated[int, Option("Tokens of a context, K.", low=1, group="Limits")]
)
MinCount = TypeAliasType(
    "MinCount",
    Annotated[int, Option("Leave out contexts seen fewer times.", low=1, group="Limits")],
)
CountingMemory = TypeAliasType(
    "CountingMemory",
    Annotated[
        str | int,
        Option(
            "What grouping may hold, such as 512MiB; the rest goes to disk. The counts come on top.",
            low=1,
            group="Limits",
        ),
    ],
)
CountingEngine = TypeAliasType(
    "CountingEngine",
    Annotated[
        Literal["here", "spark"],
        Option(
            "Engine that counts: here (on this machine, out of core) or spark (on a cluster).",
            group="Advanced",
        ),
    ],
)
Master = TypeAliasType("Master", Annotated[str | None, MASTER])


@dataclass(frozen=True, kw_only=True)
class Counting(Settings):
    """Which contexts are counted, and with what; see `headscan.text.counts.count`."""

    order: Order
    min_count: MinCount = 1
    memory: CountingMemory = "4GiB"
    engine: CountingEngine = "here"
    master: Master = None

    def check(self) -> None:
        super().check()
        if parse_bytes(self.memory) < 1:
            raise BadInput(f"--memory must be at least a byte, not {self.memory}.")
        check_engine(self.engine, self.master)
