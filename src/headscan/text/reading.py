"""Files as streams of strictly decoded characters: plain, gzip or zstd, never held whole in memory,
whatever is in them.
"""

import codecs
import gzip
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from headscan.run.errors import BadInput
from headscan.run.memory import unpackable

PACKINGS = (".gz", ".zst")
CHUNK = 1 << 16  # bytes read at a time
# bytes of a .zst unpacked at a time: zeros are packed thirty thousand times smaller
PACKED = 1 << 10
LONGEST = 1 << 24
"""Characters of the longest line, row or document that is held at once."""
# A file that unpacks to more than this many bytes, and to more than so many times its own size, is
# no text.
UNPACKED = 1 << 26
RATIO = 500
PEEK = 1 << 18  # packed bytes that are looked at before any work


def byte_chunks(path: Path) -> Iterator[bytes]:
    """The bytes of a file in chunks of at most 64 KiB, unpacked when its name ends in .gz or .zst.

    Raises `BadInput` where the file cannot be read, its packing is corrupt or cut off, or it
    unpacks to more than 64 MiB and more than 500 times its own size, as zeros do and texts do not.
    """
    return (chunk for chunk, _ in _counted(path))


def check_packing(path: Path) -> None:
    """Raise BadInput where the first 256 KiB of a packed file cannot be unpacked, or unpack to what
    no text does.
    """
    if path.suffix.lower() in PACKINGS:
        next((packed for _, packed in _counted(path) if packed > PEEK), None)


def too_long(what: str) -> BadInput:
    return BadInput(
        f"{what} is longer than {LONGEST:,} characters, the most that is held at once: break it up."
    )


def _counted(path: Path) -> Iterator[tuple[bytes, int]]:
    """Chunks of a file, each with the packed bytes that were read for it and those before it."""
    unpackers = {".gz": _gzip_chunks, ".zst": _zstd_chunks}
    total = 0
    try:
        with path.open("rb") as file:
            if path.suffix.lower() not in unpackers:
                while chunk := file.read(CHUNK):
                    yield chunk, 0
                return
            for unpacked in unpackers[path.suffix.lower()](file, path):
                for start in range(0, len(unpacked), CHUNK):
                    yield unpacked[start : start + CHUNK], (packed := file.tell())
                    total += CHUNK
                    if total > UNPACKED and total > RATIO * packed:
                        raise BadInput(
                            f"{path} unpacks to more than {RATIO} times its size, which no text "
                            "does: unpack it yourself if that is what you mean."
                        )
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
    # zstandard's own stream_reader ends a truncated file without a word; the decompression object
    # says where it stands.
    import zstandard

    frames = zstandard.ZstdDecompressor(max_window_size=(room := min(1 << 31, unpackable())))
    frame = None
    while chunk := file.read(PACKED):
        while chunk:
            frame = frame or frames.decompressobj()
            try:
                unpacked = frame.decompress(chunk)
            except zstandard.ZstdError as fault:
                large = (
                    f"takes more than {room:,} bytes to unpack"
                    if "too much memory" in str(fault)
                    else ""
                )
                raise BadInput(
                    f"{path} {large or f'is not a whole zstd file: {fault}'}."
                ) from fault
            if unpacked:
                yield unpacked
            chunk = frame.unused_data if frame.eof else b""
            frame = None if frame.eof else frame
    if frame is not None:
        raise BadInput(f"{path} is not a whole zstd file: it ends inside a frame.")


def characters(chunks: Iterable[bytes], name: str) -> Iterator[str]:
    """Decode UTF-8 strictly, chunk by chunk; a byte order mark at the very start is dropped.

    >>> list(characters([b"caf\\xc3", b"\\xa9"], "menu.txt"))
    ['caf', 'é']
    """
    pending, offset, first = b"", 0, True

    def decode(final: bool) -> str:
        nonlocal pending, offset
        try:
            text, used = codecs.utf_8_decode(pending, "strict", final)
        except UnicodeDecodeError as fault:
            wrong = f"byte 0x{pending[fault.start]:02X} at offset {offset + fault.start}"
            raise BadInput(f"{name} is not UTF-8: {wrong}.") from fault
        pending, offset = pending[used:], offset + used
        return text

    for chunk in chunks:
        pending += chunk
        text = decode(False)
        if first and text:
            text = text.removeprefix("\ufeff")
            first = False
        if text:
            yield text
    decode(True)


def lines(pieces: Iterable[str], name: str = "The text") -> Iterator[str]:
    """Lines ended by a line feed, without it or a carriage return before it; one line is held in
    memory at a time.

    >>> list(lines(["a\\nb", "c\\r\\n\\nd"]))
    ['a', 'bc', '', 'd']
    """
    held: list[str] = []  # the parts of a line that spans chunks, joined once
    length = number = 0
    for piece in pieces:
        first, *rest = piece.split("\n")
        held.append(first)
        length += len(first)
        if length > LONGEST:
            raise too_long(f"{name}, line {number + 1}")
        for part in rest:
            yield "".join(held).removesuffix("\r")
            held = [part]
            length = len(part)
            number = number + 1
    if last := "".join(held):
        yield last.removesuffix("\r")
