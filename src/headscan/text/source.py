"""The source of a text: a file, a folder, a stream, a name, or the text itself; found and checked
before it is read. Also the options of verbs that read or count a text.
"""

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

TextLike = TypeAliasType("TextLike", str | os.PathLike[str] | Sequence[str])
"""A file (.txt, .jsonl, .parquet, also .gz or .zst), a folder, "-", the name of an embedded text, a
`datasets` id, or text.

A list of strings holds texts. A string is the text itself if it has a line break, or is longer than
a file's name can be (255 bytes) and is no path either.
"""

FORMATS = (".txt", ".jsonl", ".parquet")

LONGEST_NAME = 255
"""Bytes of the longest file name, on every file system in use."""

FOLDER = Path(__file__).parent / "embedded"
"""The texts that come with headscan."""

PYTHON_HELP = "pydoc"
"""The name of a text that comes with Python, its own `help()`."""


def embedded_names() -> tuple[str, ...]:
    """Return the names of texts: of each `NAME.txt` in the folder `text/embedded`, and `pydoc`.

    In the embedded texts a document (a story) is one paragraph, so that `documents="paragraphs"`
    gives one document a story. `pydoc` is Python's own `help()`.
    """
    names = {path.stem for path in FOLDER.glob("*.txt")}
    return tuple(sorted(names | {PYTHON_HELP}))


def embedded(name: str) -> Path:
    """Return the path of a text that comes with headscan.

    Raises BadInput where there is none (`pydoc` has no file).
    """
    path = FOLDER / f"{name}.txt"
    if name not in embedded_names() or not path.is_file():
        raise BadInput(
            f"There is no embedded text file {name!r}; there are: {', '.join(embedded_names())}."
        )
    return path


def python_help() -> Iterator[str]:
    """Yield the help topics of Python, in alphabetical order, with a blank line between two.

    The text differs from one Python version to the next; the SHA-256 in the protocol of a run tells
    which it was.
    """
    from pydoc_data.topics import topics

    for number, name in enumerate(sorted(topics)):
        separator = "\n\n" if number else ""
        yield separator + topics[name].strip("\n")


def is_text(source: TextLike) -> bool:
    """Return whether a source is the text itself, not the name of one."""
    if not isinstance(source, str):
        return not isinstance(source, os.PathLike)
    if "\n" in source or "\r" in source:
        return True
    data = os.fsencode(source) if "\0" not in source else b""
    if len(data) <= LONGEST_NAME:
        return not data and bool(source)
    if any(len(part) > LONGEST_NAME for part in data.split(b"/")):
        return True
    # A path may be longer, in several names; a text has spaces.
    return b" " in data and not os.path.exists(source)


def source_name(source: TextLike) -> str:
    """Return the name of a source in sentences and protocols."""
    if is_text(source):
        return "<text>" if isinstance(source, str) else "<list>"
    return os.fspath(source)  # type: ignore[arg-type]


def find_files(source: str | os.PathLike[str]) -> list[Path] | None:
    """Return the files of a source that is a name; None for names that stand for no file.

    They are the file itself, those of a folder, or that of an embedded text.
    """
    name = os.fspath(source)
    _check_name(name)
    if not name:
        raise BadInput("There is nothing to read: the name of a text is empty.")
    path = Path(name).expanduser()
    if path.is_dir():
        return _files_in_folder(path)
    if path.exists():
        if ending(path) not in FORMATS:
            raise BadInput(f"{path} has an unknown ending; a text file ends in {_known_endings()}.")
        return [path]
    if name == PYTHON_HELP:
        return None
    if name in embedded_names():
        return [embedded(name)]
    if "://" in name:
        raise BadInput(f"A text is not read from a URL ({name}): download it and name the file.")
    if isinstance(source, os.PathLike) or _is_path(name):
        raise BadInput(f"There is no file or folder {name}.{nearest(name, embedded_names())}")
    if " " in name:
        raise BadInput(
            f"There is no file, folder or data set {name!r}. To give a text itself, write it into "
            "standard input with --text -, or in Python give a list of texts."
        )
    return None


def has_texts(source: TextLike, documents: str) -> bool:
    """Return whether the documents of a source are texts of their own, not whole files of running
    text.

    >>> has_texts(["a", "b"], "whole"), has_texts("stories", "whole"), has_texts("a.txt", "lines")
    (True, False, True)
    """
    if documents != "whole" or not isinstance(source, str | os.PathLike):
        return True
    if is_text(source) or os.fspath(source) == "-":
        return False
    if os.fspath(source) in embedded_names():
        return False
    files = find_files(source)
    return files is None or not any(ending(path) == ".txt" for path in files)


def check_text(source: TextLike) -> None:
    """Raise BadInput for what can be known of a text without reading it all.

    Verbs call it before any other work.
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
    """Return the ending of a file without that of its packing: '.txt' for 'a.txt.gz'."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in PACKINGS:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def _check_name(name: str) -> None:
    """Raise BadInput for a name that is not UTF-8.

    Names come from the system with stray bytes as lone surrogates, which neither JSON nor a page
    can hold.
    """
    try:
        name.encode()
    except UnicodeEncodeError:
        shown = os.fsencode(name).decode("utf-8", "backslashreplace")
        raise BadInput(f"The name of the file {shown} is not UTF-8: rename it.") from None


def _is_path(name: str) -> bool:
    """Return whether a missing source was meant as a path, not as the id (`name` or `owner/name`)
    of a dataset.
    """
    if ending(Path(name)) in FORMATS or Path(name).suffix in PACKINGS:
        return True
    return name.startswith((".", "/", "~")) or "\\" in name or name.count("/") > 1


def _files_in_folder(folder: Path) -> list[Path]:
    """Return the text files at any depth of a folder, sorted; hidden ones are passed over."""
    files = []
    for directory, subfolders, names in os.walk(folder):  # unreadable folders are passed over
        subfolders[:] = [name for name in subfolders if not name.startswith(".")]
        for name in names:
            path = Path(directory, name)
            if not name.startswith(".") and ending(path) in FORMATS and os.path.isfile(path):
                files.append(path)
    if not files:
        raise BadInput(f"The folder {folder} holds no text: no file ends in {_known_endings()}.")
    for path in files:
        _check_name(str(path))
    return sorted(files, key=lambda path: path.relative_to(folder).as_posix())


def _known_endings() -> str:
    return f"{', '.join(FORMATS)} (or these with {' or '.join(PACKINGS)})"


TEXT = Option(
    "A .txt, .jsonl or .parquet file (also .gz, .zst), a folder of them, - for standard input, a "
    "datasets id, or the name of an embedded text. In Python also the text itself, or a list of "
    "texts.",
    content=True,
    metavar="TEXT",
    group="Input",
)
"""The help of the text, the same for every verb."""

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
    """Return the bytes of a number or an amount such as "512MiB", "4GiB", "2GB"."""
    if isinstance(size, int):
        return size
    amount = size.strip().upper()
    unit = next(unit for unit in _UNITS if amount.endswith(unit))
    try:
        byte_count = int(float(amount.removesuffix(unit)) * _UNITS[unit])
    except (ValueError, OverflowError):
        byte_count = 0
    if not 0 < byte_count < 2**60:
        raise BadInput(f'"{size}" is no amount of memory; write for example 512MiB or 4GiB.')
    return byte_count


# The options of verbs that read a text; `Reading` and `Windowing` group them.

Documents = TypeAliasType(
    "Documents",
    Annotated[
        str,
        Option(
            "How to split a .txt into documents: whole (no split), lines, paragraphs, or a "
            "separator.",
            group="Input",
        ),
    ],
)
FieldName = TypeAliasType(
    "FieldName",
    Annotated[
        str | None,
        Option(
            "The field of a .jsonl, .parquet or datasets row that is its document (default: "
            "text); of stored states the columns or arrays that are read (default: all vectors).",
            group="Input",
        ),
    ],
)
MaxTokens = TypeAliasType(
    "MaxTokens",
    Annotated[int | None, Option("Maximum number of tokens to read.", low=1, group="Limits")],
)
StartName = Literal["none", "bos", "tokenizer"]
Start = TypeAliasType(
    "Start",
    Annotated[
        StartName,
        Option(
            "How windows begin: none (with the text), bos (with the model's start token) or "
            "tokenizer (with what the tokenizer adds to a text, in front and behind). The added "
            "positions are in no number of a site. Sentence encoders always read as their "
            "tokenizer says.",
            group="Input",
        ),
    ],
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
    """The cut of a text into documents, and how much of it is read; see `headscan.text.documents`.

    Attributes:
        documents: whole, lines, paragraphs, or a separator.
        field: the field of a row that is its document; None: "text".
        max_tokens: number of tokens to read; None: all.
        start: how windows begin.
    """

    documents: Documents = "whole"
    field: FieldName = None
    max_tokens: MaxTokens = None
    start: Start = "tokenizer"

    def check(self) -> None:
        super().check()
        if not self.documents:
            raise BadInput(
                "--documents must be whole, lines, paragraphs or a separator that is not empty."
            )


@dataclass(frozen=True, kw_only=True)
class Windowing(Settings):
    """The cut of tokens into windows, and the positions that count.

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


# The options of verbs that count contexts; `Counting` groups them.

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
            "What grouping may hold, such as 512MiB; the rest goes to disk. The counts come on "
            "top.",
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
    """The contexts to count, and the engine that counts; see `headscan.text.counts.count`.

    Attributes:
        order: tokens of a context.
        min_count: contexts seen fewer times are left out.
        memory: bytes that grouping may hold, such as "512MiB".
        engine: "here" (this machine) or "spark" (a cluster).
        master: the cluster.
    """

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
