"""Files as streams of strictly decoded characters: plain, gzip or zstd, never whole in memory."""

import codecs
import gzip
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from headscan.run.errors import BadInput
from headscan.run.memory import unpackable

PACKINGS = (".gz", ".zst")

CHUNK = 1 << 16
"""Bytes read at a time."""

PACKED = 1 << 10
"""Bytes of a .zst unpacked at a time: zeros are packed thirty thousand times smaller."""

LONGEST = 1 << 24
"""Characters of the longest line, row or document that is held at once."""

UNPACKED = 1 << 26
"""Bytes beyond which a file that unpacks to more than `RATIO` times its own size is no text."""

RATIO = 500

PEEK = 1 << 18
"""Packed bytes that are read before any work, to check the packing."""


class _Chunk(NamedTuple):
    """A chunk of a file's content, and the packed bytes read up to here (0 for a plain file)."""

    data: bytes
    packed: int


def byte_chunks(path: Path) -> Iterator[bytes]:
    """Return the bytes of a file in chunks of at most 64 KiB, unpacked if its name ends in .gz or
    .zst.

    Raises `BadInput` where the file cannot be read, its packing is corrupt or cut off, or it
    unpacks to more than 64 MiB and more than 500 times its own size, as zeros do and texts do not.
    """
    return (chunk.data for chunk in _chunks(path))


def check_packing(path: Path) -> None:
    """Raise BadInput where the first 256 KiB of a packed file cannot be unpacked, or unpack to more
    than any text does.
    """
    if path.suffix.lower() not in PACKINGS:
        return
    for chunk in _chunks(path):
        if chunk.packed > PEEK:
            return


def too_long(name: str) -> BadInput:
    """Return the error for a line, row or document that is too long."""
    return BadInput(
        f"{name} is longer than {LONGEST:,} characters, the most that is held at once: break it up."
    )


def _chunks(path: Path) -> Iterator[_Chunk]:
    """Yield the content of a file in chunks of at most 64 KiB."""
    packing = path.suffix.lower()
    try:
        with path.open("rb") as file:
            if packing == ".gz":
                yield from _checked(_gzip_chunks(file, path), file, path)
            elif packing == ".zst":
                yield from _checked(_zstd_chunks(file, path), file, path)
            else:
                while data := file.read(CHUNK):
                    yield _Chunk(data, 0)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or error}.") from error


def _checked(unpacked: Iterator[bytes], file: BinaryIO, path: Path) -> Iterator[_Chunk]:
    """Yield unpacked data in chunks; BadInput where it is too large for the packed file."""
    total = 0
    for data in unpacked:
        for start in range(0, len(data), CHUNK):
            packed = file.tell()
            yield _Chunk(data[start : start + CHUNK], packed)
            total += CHUNK
            if total > UNPACKED and total > RATIO * packed:
                raise BadInput(
                    f"{path} unpacks to more than {RATIO} times its size, which no text does: "
                    "unpack it yourself if that is what you mean."
                )


def _gzip_chunks(file: BinaryIO, path: Path) -> Iterator[bytes]:
    unpacked = gzip.GzipFile(fileobj=file)
    while True:
        try:
            data = unpacked.read(CHUNK)
        except (gzip.BadGzipFile, zlib.error, EOFError) as error:
            raise BadInput(f"{path} is not a whole gzip file: {error}.") from error
        if not data:
            return
        yield data


def _zstd_chunks(file: BinaryIO, path: Path) -> Iterator[bytes]:
    # zstandard's own stream_reader ends a truncated file without an error; the decompression object
    # tells whether its frame has ended.
    import zstandard

    memory = min(1 << 31, unpackable())
    decompressor = zstandard.ZstdDecompressor(max_window_size=memory)
    frame = None
    while packed := file.read(PACKED):
        while packed:
            if frame is None:
                frame = decompressor.decompressobj()
            try:
                data = frame.decompress(packed)
            except zstandard.ZstdError as error:
                if "too much memory" in str(error):
                    reason = f"takes more than {memory:,} bytes to unpack"
                else:
                    reason = f"is not a whole zstd file: {error}"
                raise BadInput(f"{path} {reason}.") from error
            if data:
                yield data
            packed = b""
            if frame.eof:
                packed = frame.unused_data
                frame = None
    if frame is not None:
        raise BadInput(f"{path} is not a whole zstd file: it ends inside a frame.")


def characters(chunks: Iterable[bytes], name: str) -> Iterator[str]:
    """Yield the characters of UTF-8 chunks, decoded strictly.

    A byte order mark at the very start is dropped.

    >>> list(characters([b"caf\\xc3", b"\\xa9"], "menu.txt"))
    ['caf', 'é']
    """
    decoder = _Decoder(name)
    at_start = True
    for chunk in chunks:
        text = decoder.decode(chunk)
        if at_start and text:
            text = text.removeprefix("\ufeff")
            at_start = False
        if text:
            yield text
    decoder.decode(b"", final=True)


class _Decoder:
    """Decodes UTF-8 strictly; an error names the offset in the stream."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.pending = b""  # the beginning of a character that the next chunk completes
        self.offset = 0

    def decode(self, chunk: bytes, *, final: bool = False) -> str:
        """Return the characters that are complete."""
        data = self.pending + chunk
        try:
            text, used = codecs.utf_8_decode(data, "strict", final)
        except UnicodeDecodeError as error:
            position = self.offset + error.start
            raise BadInput(
                f"{self.name} is not UTF-8: byte 0x{data[error.start]:02X} at offset {position}."
            ) from error
        self.pending = data[used:]
        self.offset += used
        return text


def lines(pieces: Iterable[str], name: str = "The text") -> Iterator[str]:
    """Yield the lines of a text, without the line feed or a carriage return before it.

    One line is held in memory at a time.

    >>> list(lines(["a\\nb", "c\\r\\n\\nd"]))
    ['a', 'bc', '', 'd']
    """
    parts: list[str] = []  # those of a line that spans pieces, joined once
    length = 0
    number = 1
    for piece in pieces:
        end, *beginnings = piece.split("\n")
        parts.append(end)
        length += len(end)
        if length > LONGEST:
            raise too_long(f"{name}, line {number}")
        for beginning in beginnings:
            yield "".join(parts).removesuffix("\r")
            parts = [beginning]
            length = len(beginning)
            number += 1
    last = "".join(parts)
    if last:
        yield last.removesuffix("\r")
