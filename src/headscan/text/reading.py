"""Files as streams of strictly decoded characters: plain, gzip or zstd, never held whole in memory."""

from __future__ import annotations

import codecs
import gzip
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from headscan.run.errors import BadInput

__all__ = ["PACKINGS", "byte_chunks", "characters", "lines"]

PACKINGS = (".gz", ".zst")
CHUNK = 1 << 16  # bytes read at a time
PACKED = 1 << 10  # bytes of a .zst unpacked at a time: zeros are packed thirty thousand times smaller


def byte_chunks(path: Path) -> Iterator[bytes]:
    """The bytes of a file in chunks, unpacked when its name ends in .gz or .zst.

    Raises:
        BadInput: the file cannot be opened or read, or its packing is corrupt or cut off.
    """
    try:
        with path.open("rb") as file:
            if path.suffix.lower() == ".gz":
                yield from _gzip_chunks(file, path)
            elif path.suffix.lower() == ".zst":
                yield from _zstd_chunks(file, path)
            else:
                while chunk := file.read(CHUNK):
                    yield chunk
    except OSError as fault:
        raise BadInput(f"{path} cannot be read: {fault.strerror or fault}.") from fault


def _gzip_chunks(file: BinaryIO, path: Path) -> Iterator[bytes]:
    unpacked = gzip.GzipFile(fileobj=file)
    while True:
        try:
            chunk = unpacked.read(CHUNK)
        except (gzip.BadGzipFile, zlib.error, EOFError) as fault:
            raise BadInput(f"{path} is not a whole gzip file: {fault}.") from fault
        if not chunk:
            return
        yield chunk


def _zstd_chunks(file: BinaryIO, path: Path) -> Iterator[bytes]:
    # zstandard's own stream_reader ends a truncated file without a word; the decompression object says where it stands.
    import zstandard

    frames = zstandard.ZstdDecompressor(max_window_size=1 << 31)
    frame = None
    while chunk := file.read(PACKED):
        while chunk:
            frame = frame or frames.decompressobj()
            try:
                unpacked = frame.decompress(chunk)
            except zstandard.ZstdError as fault:
                raise BadInput(f"{path} is not a whole zstd file: {fault}.") from fault
            if unpacked:
                yield unpacked
            chunk = frame.unused_data if frame.eof else b""
            frame = None if frame.eof else frame
    if frame is not None:
        raise BadInput(f"{path} is not a whole zstd file: it ends inside a frame.")


def characters(chunks: Iterable[bytes], name: str) -> Iterator[str]:
    """Decode UTF-8 strictly, chunk by chunk; a byte order mark at the very start is dropped.

    Raises:
        BadInput: a byte is not UTF-8; the sentence names its offset (in the unpacked bytes).

    >>> list(characters([b"caf\\xc3", b"\\xa9"], "menu.txt"))
    ['caf', 'é']
    >>> list(characters([b"caf\\xe9!"], "menu.txt"))
    Traceback (most recent call last):
        ...
    headscan.BadInput: menu.txt is not UTF-8: byte 0xE9 at offset 3.
    """
    pending, offset, first = b"", 0, True

    def decode(final: bool) -> str:
        nonlocal pending, offset
        try:
            text, used = codecs.utf_8_decode(pending, "strict", final)
        except UnicodeDecodeError as fault:
            raise BadInput(
                f"{name} is not UTF-8: byte 0x{pending[fault.start]:02X} at offset {offset + fault.start}."
            ) from fault
        pending, offset = pending[used:], offset + used
        return text

    for chunk in chunks:
        pending += chunk
        text = decode(False)
        if first and text:
            text, first = text.removeprefix("\ufeff"), False
        if text:
            yield text
    decode(True)


def lines(pieces: Iterable[str]) -> Iterator[str]:
    """Lines ended by a line feed, without it or a carriage return before it; one line is held in memory at a time.

    >>> list(lines(["a\\nb", "c\\r\\n\\nd"]))
    ['a', 'bc', '', 'd']
    """
    held: list[str] = []  # the parts of a line that spans chunks, joined once
    for piece in pieces:
        first, *rest = piece.split("\n")
        held.append(first)
        for part in rest:
            yield "".join(held).removesuffix("\r")
            held = [part]
    if last := "".join(held):
        yield last.removesuffix("\r")
