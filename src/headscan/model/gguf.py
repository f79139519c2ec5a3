"""Models in one file: .gguf, as llama.cpp keeps them. Its header is read here; transformers unpacks its weights."""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import Any

import torch

from headscan.run import BadInput

__all__ = ["Header", "described", "is_gguf", "read_header", "unpacking"]

PLAIN = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
# The types of values, by their numbers: struct's letter for each. 8 is a string, 9 an array.
NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9


@dataclass(frozen=True)
class Header:
    """What a .gguf file says of itself before its weights.

    Attributes:
        packing: the format that most of its weights have: F32, F16, BF16, or blocks of few bits such as Q4_K.
        dtype: the precision the weights are in; None where they are packed in few bits.
        tokenizer: whether a tokenizer is in it.
    """

    packing: str
    dtype: torch.dtype | None
    tokenizer: bool

    @property
    def notes(self) -> list[str]:
        """What a reader of this model's numbers must know, as sentences."""
        if self.dtype is not None:
            return []
        return [f"The weights were rounded to few bits in the .gguf file (most of them as {self.packing})."]


def is_gguf(path: Path) -> bool:
    """Whether a file is one, by its name.

    >>> is_gguf(Path("qwen.GGUF"))
    True
    """
    return path.suffix.lower() == ".gguf"


def read_header(file: Path) -> Header:
    """The header of a .gguf file, and that the file is as long as it promises; the weights are not read.

    The format (versions 2 and 3, little-endian): "GGUF", the version; the numbers of tensors and of values; the values,
    each a name, a type and the value; of each tensor the name, its dimensions, its type and its offset; the tensors.

    Raises:
        BadInput: the packages that read such files are not installed; the file is truncated, or is none.
    """
    for package in ("gguf", "accelerate"):
        if find_spec(package) is None:
            raise BadInput(f'A .gguf file needs the package {package}: pip install "headscan[gguf]".')
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    entries: dict[str, int] = {}
    end = 0
    try:
        with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as raw:
            walk, size = _Walk(raw), len(raw)
            version, tensors, values = walk.take("4sIQQ")[1:] if raw[:4] == b"GGUF" else (0, 0, 0)
            if version not in (2, 3):
                raise BadInput(f"'{file}' is no .gguf file of version 2 or 3.")
            names = {walk.value() for _ in range(values)}
            for _ in range(tensors):
                walk.string()
                shape = walk.take(f"{walk.take('I')[0]}Q")
                kind, offset = walk.take("IQ")
                packing = GGMLQuantizationType(kind)
                block, width = GGML_QUANT_SIZES[packing]
                entries[packing.name] = entries.get(packing.name, 0) + prod(shape)
                end = max(end, offset + prod(shape) // block * width)
    except BadInput:
        raise
    except (struct.error, ValueError, OverflowError) as error:
        raise BadInput(f"'{file}' is truncated or damaged: its header cannot be read.") from error
    if not entries:
        raise BadInput(f"'{file}' holds no weights.")
    # The tensors begin at a multiple of 32 bytes, where the file names no other.
    end += walk.place if "general.alignment" in names else -(-walk.place // 32) * 32
    if end > size:
        raise BadInput(f"'{file}' is truncated: it has {size} bytes, its header promises {end}.")
    most = max(entries, key=lambda name: entries[name])
    # Norms stay in float32 beside weights of half precision; the weights are most of the entries.
    return Header(most, PLAIN[most] if entries.keys() <= PLAIN.keys() else None, "tokenizer.ggml.tokens" in names)


class _Walk:
    """A place in a header, moved on by reading."""

    def __init__(self, raw: mmap.mmap) -> None:
        self.raw, self.place = raw, 0

    def take(self, form: str) -> tuple[Any, ...]:
        found = struct.unpack_from(f"<{form}", self.raw, self.place)
        self.place += struct.calcsize(f"<{form}")
        return found

    def string(self) -> bytes:
        length = self.take("Q")[0]
        if length > len(self.raw):
            raise ValueError("a string longer than the file")
        self.place += length
        return self.raw[self.place - length : self.place]

    def value(self) -> str:
        """The name of a value, which itself is passed over."""
        name = self.string().decode()
        self._skip(self.take("I")[0])
        return name

    def _skip(self, kind: int, count: int = 1) -> None:
        if kind in NUMBERS:
            self.place += count * struct.calcsize(f"<{NUMBERS[kind]}")
        elif kind == STRING:
            for _ in range(count):
                self.string()
        elif kind == ARRAY:
            for _ in range(count):
                self._skip(*self.take("IQ"))
        else:
            raise ValueError("an unknown type of value")


def described(config: Any, header: Header) -> Any:
    """The configuration with what transformers leaves out of it: the class with a head, the precision of the weights."""
    from transformers import AutoModelForCausalLM

    causal: Any = AutoModelForCausalLM._model_mapping
    if not getattr(config, "architectures", None) and type(config) in causal:
        config.architectures = [causal[type(config)].__name__]
    config.dtype = header.dtype or torch.float32
    return config


def unpacking() -> dict[str, object]:
    """Tells a transformers that could keep the weights packed to unpack them."""
    import transformers

    settings: Any = getattr(transformers, "GgufConfig", None)
    return {} if settings is None else {"quantization_config": settings(dequantize=True)}
