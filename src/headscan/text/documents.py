"""From a source of text to a stream of documents, each itself a stream of character pieces."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from headscan.run.errors import BadInput
from headscan.text import rows
from headscan.text.reading import LONGEST, byte_chunks, characters, lines, too_long
from headscan.text.shipped import PYTHON_HELP, python_help
from headscan.text.source import TextLike, ending, find_files, is_text

__all__ = ["Document", "documents"]


@dataclass
class Document:
    """One document: where it stands, and its text as a stream of character pieces that can be read once.

    Iterating gives the pieces, `.text()` the whole (which holds it in memory). Documents come from one stream:
    whatever of a document is unread when the next one is asked for is skipped.
    """

    name: str
    pieces: Iterable[str] = field(repr=False)

    def __iter__(self) -> Iterator[str]:
        return iter(self.pieces)

    def text(self) -> str:
        """All that is unread of the document, in one string; BadInput where it is longer than 16,777,216 characters."""
        text = self.beginning(LONGEST + 1)
        if len(text) > LONGEST:
            raise too_long(self.name)
        return text

    def beginning(self, characters: int) -> str:
        """At most so many characters of what is unread of the document."""
        held, length = [], 0
        for piece in self.pieces:
            held.append(piece)
            length += len(piece)
            if length >= characters:
                break
        return "".join(held)[:characters]


def documents(source: TextLike, *, documents: str = "whole", field: str = "text") -> Iterator[Document]:
    """Stream the documents of a source, in order, without ever holding the corpus in memory.

    Args:
        source: a file (.txt, .jsonl, .parquet, each also with .gz or .zst), a folder (every such file in it, at any
            depth, by sorted path; hidden and other files are passed over), "-" (standard input, as .txt; once),
            the name of an embedded text, a `datasets` id as ID, ID:SPLIT or ID:CONFIG:SPLIT (streamed; split "train"
            unless said), the text itself (a string with a line break, or too long for a name), or a list of strings;
            these are read as a .txt. A file or folder wins over a name.
        documents: how a .txt is cut into documents: "whole" (the file is one document, exactly as it stands),
            "lines", "paragraphs" (runs of lines that are not blank) or any other string, taken as the separator.
            Line ends belong to no document of "lines" and "paragraphs"; around a separator nothing is stripped.
        field: the field of a .jsonl, .parquet or `datasets` row that is its document.

    Yields:
        documents with at least one character (empty rows and blank lines are no documents).

    Raises:
        BadInput: the source is missing, unknown, corrupt or not UTF-8, a row has no such field or no string in it, a line
            ("lines", "paragraphs", .jsonl) or row is longer than 16,777,216 characters, or a packed file unpacks to
            more than 64 MiB and more than 500 times its size.

    Memory: 64 KiB chunks; a line ("lines", "paragraphs", .jsonl) or a .parquet batch of about 16 MiB is held whole.

    >>> [d.text() for d in documents(["one\\ntwo\\n\\nthree\\n"], documents="paragraphs")]
    ['one\\ntwo', 'three']
    """
    if not documents:
        raise BadInput('The documents of a text are "whole", "lines", "paragraphs" or a separator that is not empty.')
    for document in _all(source, documents, field):
        unread = iter(document)
        # An empty document would join two end-of-text tokens; the first character decides.
        head = next((piece for piece in unread if piece), None)
        if head is None:
            continue
        yield Document(document.name, _chain(head, unread))
        for _ in unread:
            pass


def _chain(head: str, rest: Iterator[str]) -> Iterator[str]:
    yield head
    yield from rest


def _all(source: TextLike, mode: str, column: str) -> Iterator[Document]:
    if isinstance(source, str) and is_text(source):
        yield from _cut([_sound(source, "The text")], "<text>", mode)
    elif not isinstance(source, str | os.PathLike):
        for number, text in enumerate(source):
            yield from _cut([_sound(text, f"Text {number}")], f"text {number}", mode)
    elif os.fspath(source) == "-":
        yield from _cut(characters(_standard_input(), "Standard input"), "-", mode)
    elif (files := find_files(source)) is not None:
        for file in files:
            yield from _file(file, mode, column)
    elif source == PYTHON_HELP:
        yield from _cut(python_help(), PYTHON_HELP, mode)
    else:
        for where, text in rows.dataset(str(source), column):
            yield Document(where, [text])


def _sound(text: str, name: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as fault:
        raise BadInput(f"{name} holds half a surrogate pair at character {fault.start}.") from None
    return text


def _file(path: Path, mode: str, column: str) -> Iterator[Document]:
    kind = ending(path)
    if kind == ".txt":
        yield from _cut(characters(byte_chunks(path), str(path)), str(path), mode)
        return
    for where, text in rows.jsonl(path, column) if kind == ".jsonl" else rows.parquet(path, column):
        yield Document(where, [text])


def _standard_input() -> Iterator[bytes]:
    stream = sys.stdin.buffer
    while chunk := stream.read(1 << 16):
        yield chunk


def _cut(pieces: Iterable[str], name: str, mode: str) -> Iterator[Document]:
    if mode == "whole":
        yield Document(name, pieces)
    elif mode == "lines":
        for number, line in enumerate(lines(pieces, name), 1):
            if line and not line.isspace():
                yield Document(f"{name}, line {number}", [line])
    elif mode == "paragraphs":
        yield from _paragraphs(lines(pieces, name), name)
    else:
        yield from _separated(pieces, mode, name)


def _paragraphs(text: Iterator[str], name: str) -> Iterator[Document]:
    ended = False

    def paragraph(line: str) -> Iterator[str]:
        nonlocal ended
        yield line
        for follower in text:
            if not follower or follower.isspace():
                return
            yield "\n" + follower
        ended = True

    number = 0
    while not ended:
        opening = next((line for line in text if line and not line.isspace()), None)
        if opening is None:
            return
        number += 1
        document = Document(f"{name}, paragraph {number}", paragraph(opening))
        yield document
        for _ in document:
            pass


def _separated(pieces: Iterable[str], separator: str, name: str) -> Iterator[Document]:
    stream = iter(pieces)
    held, ended = "", False

    def one() -> Iterator[str]:
        nonlocal held, ended
        while True:
            before, found, after = held.partition(separator)
            if found:
                held = after
                if before:
                    yield before
                return
            # The last characters may be the beginning of a separator that the next piece completes.
            sure = max(0, len(held) - len(separator) + 1)
            ready, held = held[:sure], held[sure:]
            if ready:
                yield ready
            piece = next(stream, None)
            if piece is None:
                ended = True
                if held:
                    yield held
                return
            held += piece

    number = 0
    while not ended:
        number += 1
        document = Document(f"{name}, document {number}", one())
        yield document
        for _ in document:
            pass
