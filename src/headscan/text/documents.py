"""From a source of text to a stream of documents, each itself a stream of character pieces."""

import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, groupby
from pathlib import Path

from headscan.run.errors import BadInput
from headscan.text.reading import CHUNK, LONGEST, byte_chunks, characters, lines, too_long
from headscan.text.rows import checked_unicode, dataset, jsonl, parquet
from headscan.text.source import PYTHON_HELP, TextLike, ending, find_files, is_text, python_help

DEFAULT_FIELD = "text"
"""The field of a row that is its document, where none is named."""


@dataclass
class Document:
    """One document: its name in messages, and its text as a stream of pieces that can be read once.

    Documents come from one stream: what is unread of one when the next one is asked for is skipped.
    """

    name: str
    pieces: Iterable[str] = field(repr=False)

    def __iter__(self) -> Iterator[str]:
        return iter(self.pieces)

    def text(self) -> str:
        """Return all that is unread of the document, in one string.

        Raises BadInput where it is longer than 16,777,216 characters.
        """
        text = self.beginning(LONGEST + 1)
        if len(text) > LONGEST:
            raise too_long(self.name)
        return text

    def beginning(self, characters: int) -> str:
        """Return at most so many characters of what is unread of the document."""
        parts = []
        length = 0
        for piece in self.pieces:
            parts.append(piece)
            length += len(piece)
            if length >= characters:
                break
        return "".join(parts)[:characters]


def documents(
    source: TextLike, *, documents: str = "whole", field: str | None = None
) -> Iterator[Document]:
    """Stream the documents of a source, in order, without ever holding the corpus in memory.

    `source` is a file (.txt, .jsonl, .parquet, each also with .gz or .zst), a folder (every such
    file in it, at any depth, by sorted path; hidden and other files are passed over), "-" (standard
    input, as .txt; once), the name of an embedded text, a `datasets` id as ID, ID:SPLIT or
    ID:CONFIG:SPLIT (streamed; split "train" unless named), the text itself (a string with a line
    break, or too long for a name), or a list of strings; these are read as a .txt. A file or folder
    wins over a name.

    `documents` is how a .txt is cut: "whole" (the file is one document, exactly as it is), "lines",
    "paragraphs" (runs of lines that are not blank) or any other string, taken as the separator.
    Line ends belong to no document of "lines" and "paragraphs"; around a separator nothing is
    stripped. `field` is the field of a row that is its document; None stands for "text".

    Yields documents with at least one character. Raises `BadInput` where the source is missing,
    unknown, corrupt or not UTF-8, a row has no such field or no string in it, a line ("lines",
    "paragraphs", .jsonl) or row is longer than 16,777,216 characters, or a packed file unpacks to
    more than 64 MiB and more than 500 times its size. Memory: 64 KiB chunks; a line or a .parquet
    batch of about 16 MiB is held whole.

    >>> [d.text() for d in documents(["one\\ntwo\\n\\nthree\\n"], documents="paragraphs")]
    ['one\\ntwo', 'three']
    """
    if not documents:
        raise BadInput(
            'The documents of a text are "whole", "lines", "paragraphs" or a separator that is '
            "not empty."
        )
    for document in _all_documents(source, documents, field or DEFAULT_FIELD):
        # An empty document would join two end-of-text tokens; the first character decides.
        unread = iter(document)
        first = next((piece for piece in unread if piece), None)
        if first is None:
            continue
        yield Document(document.name, chain([first], unread))
        for _ in unread:
            pass


def _all_documents(source: TextLike, mode: str, field: str) -> Iterator[Document]:
    """Yield the documents of a source, empty ones too."""
    if isinstance(source, str) and is_text(source):
        yield from _cut([checked_unicode(source, "The text")], "<text>", mode)
    elif not isinstance(source, str | os.PathLike):
        for number, text in enumerate(source):
            yield from _cut([checked_unicode(text, f"Text {number}")], f"text {number}", mode)
    elif os.fspath(source) == "-":
        chunks = iter(partial(sys.stdin.buffer.read, CHUNK), b"")
        yield from _cut(characters(chunks, "Standard input"), "-", mode)
    else:
        yield from _named_documents(source, mode, field)


def _named_documents(source: str | os.PathLike[str], mode: str, field: str) -> Iterator[Document]:
    """Yield the documents of a file, a folder, an embedded text or a dataset."""
    files = find_files(source)
    if files is not None:
        for path in files:
            yield from _file_documents(path, mode, field)
    elif source == PYTHON_HELP:
        yield from _cut(python_help(), PYTHON_HELP, mode)
    else:
        for row in dataset(str(source), field):
            yield Document(row.name, [row.text])


def _file_documents(path: Path, mode: str, field: str) -> Iterator[Document]:
    kind = ending(path)
    if kind == ".txt":
        yield from _cut(characters(byte_chunks(path), str(path)), str(path), mode)
        return
    rows = jsonl(path, field) if kind == ".jsonl" else parquet(path, field)
    for row in rows:
        yield Document(row.name, [row.text])


def _cut(pieces: Iterable[str], name: str, mode: str) -> Iterator[Document]:
    """Cut a stream of characters into documents."""
    if mode == "whole":
        yield Document(name, pieces)
    elif mode == "lines":
        for number, line in enumerate(lines(pieces, name), 1):
            if not _is_blank(line):
                yield Document(f"{name}, line {number}", [line])
    elif mode == "paragraphs":
        runs = groupby(lines(pieces, name), _is_blank)
        paragraphs = (run for blank, run in runs if not blank)
        for number, run in enumerate(paragraphs, 1):
            later_lines = (f"\n{line}" for line in run)
            yield Document(f"{name}, paragraph {number}", chain([next(run)], later_lines))
    else:
        yield from _separated(pieces, mode, name)


def _is_blank(line: str) -> bool:
    return not line or line.isspace()


def _separated(pieces: Iterable[str], separator: str, name: str) -> Iterator[Document]:
    """Cut a stream of characters at a separator."""
    splitter = _Splitter(pieces, separator)
    number = 0
    while not splitter.ended:
        number += 1
        document = Document(f"{name}, document {number}", splitter.next_part())
        yield document
        for _ in document:
            pass


class _Splitter:
    """A stream of characters that is read up to a separator at a time."""

    def __init__(self, pieces: Iterable[str], separator: str) -> None:
        self.pieces = iter(pieces)
        self.separator = separator
        self.ended = False
        self._buffer = ""

    def next_part(self) -> Iterator[str]:
        """Yield the characters up to the next separator, or to the end."""
        while True:
            part, separator, following = self._buffer.partition(self.separator)
            if separator:
                self._buffer = following
                yield part
                return
            # The last characters may be the beginning of a separator that the next piece completes.
            certain = max(0, len(self._buffer) - len(self.separator) + 1)
            text = self._buffer[:certain]
            self._buffer = self._buffer[certain:]
            yield text
            piece = next(self.pieces, None)
            if piece is None:
                self.ended = True
                yield self._buffer
                return
            self._buffer += piece
