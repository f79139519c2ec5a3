"""The header of a .gguf file, a model in one file as llama.cpp writes it.

transformers unpacks the weights.
"""

import mmap
import struct
from collections import Counter
from dataclasses import dataclass
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import Any

import torch

from headscan.run import BadInput

PLAIN_FORMATS = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
NUMBER_FORMATS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
"""struct's letter for each type of number in a header."""
STRING = 8
ARRAY = 9
ALIGNMENT = 32
"""The tensors begin at a multiple of so many bytes, where the file names no other alignment."""
PACKAGES = ("gguf", "accelerate")


@dataclass(frozen=True)
class Header:
    """The description of itself that a .gguf file begins with.

    Attributes:
        packing: the format of most of its weights: F32, F16, BF16, or blocks of few bits (Q4_K).
        dtype: the precision of the weights; None where they are packed in few bits.
        tokenizer: whether the file holds a tokenizer.
    """

    packing: str
    dtype: torch.dtype | None
    tokenizer: bool

    @property
    def precision(self) -> torch.dtype:
        """The precision in which the weights are used."""
        return self.dtype or torch.float32

    @property
    def notes(self) -> list[str]:
        """Sentences that a reader of the model's numbers needs."""
        if self.dtype is not None:
            return []
        return [
            "The weights were rounded to few bits in the .gguf file (most of them as "
            f"{self.packing})."
        ]


def is_gguf(path: Path) -> bool:
    """Return whether a file is a .gguf file, by its name.

    >>> is_gguf(Path("qwen.GGUF"))
    True
    """
    return path.suffix.lower() == ".gguf"


def read_header(file: Path) -> Header:
    """Return the header of a .gguf file that is as long as its header promises.

    The format (versions 2 and 3, little-endian): "GGUF", the version; the numbers of tensors and of
    values; the values, each a name, a type and the value; of each tensor the name, its dimensions,
    its type and its offset; the tensors, which are not read.

    Raises:
        BadInput: where the packages that read such files are not installed, and for a file that is
            truncated or no .gguf file.
    """
    for package in PACKAGES:
        if find_spec(package) is None:
            raise BadInput(
                f'A .gguf file needs the package {package}: pip install "headscan[gguf]".'
            )
    if not file.is_file():
        raise BadInput(f"'{file}' is no file.")
    try:
        with (
            file.open("rb") as stream,
            mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            size = len(data)
            contents = _contents(HeaderReader(data), file)
    except BadInput:
        raise
    except (struct.error, ValueError, OverflowError) as error:
        raise BadInput(f"'{file}' is truncated or damaged: its header cannot be read.") from error
    entries = contents.entries
    if not entries:
        raise BadInput(f"'{file}' holds no weights.")
    if contents.size > size:
        raise BadInput(
            f"'{file}' is truncated: it has {size} bytes, its header promises {contents.size}."
        )
    # Norms stay in float32 beside weights of half precision; the weights are most of the entries.
    packing = entries.most_common(1)[0][0]
    is_plain = entries.keys() <= PLAIN_FORMATS.keys()
    return Header(
        packing=packing,
        dtype=PLAIN_FORMATS[packing] if is_plain else None,
        tokenizer="tokenizer.ggml.tokens" in contents.names,
    )


@dataclass(frozen=True)
class _Contents:
    """The contents of a header: names of values, weights, and the size of the whole file.

    Attributes:
        entries: the number of weights by their format.
    """

    names: set[str]
    entries: Counter[str]
    size: int


def _contents(reader: "HeaderReader", file: Path) -> _Contents:
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    if not reader.starts_with(b"GGUF"):
        raise BadInput(f"'{file}' is no .gguf file of version 2 or 3.")
    _magic, version, tensor_count, value_count = reader.take("4sIQQ")
    if version not in (2, 3):
        raise BadInput(f"'{file}' is no .gguf file of version 2 or 3.")
    names = {reader.value() for _ in range(value_count)}
    entries: Counter[str] = Counter()
    tensors_end = 0
    for _ in range(tensor_count):
        reader.string()
        (dimensions,) = reader.take("I")
        shape = reader.take(f"{dimensions}Q")
        format_code, offset = reader.take("IQ")
        packing = GGMLQuantizationType(format_code)
        block_entries, block_bytes = GGML_QUANT_SIZES[packing]
        entries[packing.name] += prod(shape)
        tensors_end = max(tensors_end, offset + prod(shape) // block_entries * block_bytes)
    tensors_start = reader.position
    if "general.alignment" not in names:
        tensors_start = -(-tensors_start // ALIGNMENT) * ALIGNMENT
    return _Contents(names, entries, tensors_start + tensors_end)


class HeaderReader:
    """Reads a header's numbers and strings in their order; `position` is the next byte."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.position = 0

    def starts_with(self, magic: bytes) -> bool:
        """Return whether the file begins with these bytes."""
        return self.data[: len(magic)] == magic

    def take(self, layout: str) -> tuple[Any, ...]:
        """Return the next numbers, in one of struct's layouts."""
        layout = f"<{layout}"
        values = struct.unpack_from(layout, self.data, self.position)
        self.position += struct.calcsize(layout)
        return values

    def string(self) -> bytes:
        """Return the next string."""
        (length,) = self.take("Q")
        if length > len(self.data):
            raise ValueError("a string longer than the file")
        start = self.position
        self.position += length
        return self.data[start : self.position]

    def value(self) -> str:
        """Return the name of the next value; the value itself is skipped."""
        name = self.string().decode()
        (kind,) = self.take("I")
        self._skip(kind)
        return name

    def _skip(self, kind: int, count: int = 1) -> None:
        if kind in NUMBER_FORMATS:
            self.position += count * struct.calcsize(f"<{NUMBER_FORMATS[kind]}")
        elif kind == STRING:
            for _ in range(count):
                self.string()
        elif kind == ARRAY:
            for _ in range(count):
                item_kind, item_count = self.take("IQ")
                self._skip(item_kind, item_count)
        else:
            raise ValueError("an unknown type of value")
