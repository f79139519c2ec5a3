"""The weight files of a model: that they are there, are safetensors or .gguf, and are whole.
Checked before it is built.
"""

import json
import logging
import mmap
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from headscan.run import BadInput
from headscan.run.files import leads_out

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
ADAPTER = "adapter_model.safetensors"
ADAPTER_CONFIG = "adapter_config.json"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.h5", "*.msgpack", "*.pkl")


def weight_files(folder: Path, single: str = SINGLE) -> list[Path]:
    """The safetensors files that make up the model (or, of the name `single`, an adapter) in
    `folder`, each checked to be whole. Raises BadInput: none there, only pickle weights, a shard
    missing, a damaged index, a truncated file.
    """
    if (folder / single).is_file():
        files = [folder / single]
    elif single == SINGLE and (folder / INDEX).is_file():
        files = _shards(folder / INDEX)
    else:
        pickles = sorted(path.name for pattern in PICKLES for path in folder.glob(pattern))
        if pickles:
            raise BadInput(
                f"'{folder}' holds weights as {pickles[0]} only, a format that can run code when "
                "it is opened; headscan reads safetensors only (save the model again with "
                "save_pretrained)."
            )
        wanted = f"neither {SINGLE} nor {INDEX}" if single == SINGLE else f"no {single}"
        raise BadInput(f"'{folder}' has no weights: there is {wanted}.")
    for file in files:
        check_inside(folder, file)
        check_safetensors(file)
    return files


BESIDE = (
    "*token*.json",
    "tekken.json",
    "vocab*",
    "merges.txt",
    "*.model",
    "*.spm",
    "*.codes",
    "*.tiktoken",
    "*.jinja",
)
DESCRIBING = (
    *BESIDE,
    "*config*.json",
    "*.py",
    "modules.json",
    "*.index.json",
    "*/config.json",
    "*_Dense/model.safetensors",
)
"""The files beside the weights that say what a model is: its tokenizer (read beside a .gguf file
too), configurations, code, pooling.
"""


def describing_files(folder: Path, patterns: Sequence[str] = DESCRIBING) -> list[Path]:
    """Those of a model's folder; BadInput where one is a link that leads out of it."""
    files = sorted(
        {file for pattern in patterns for file in folder.glob(pattern) if file.is_file()}
    )
    for file in files:
        check_inside(folder, file)
    return files


def check_inside(folder: Path, file: Path) -> None:
    if leads_out(folder, file):
        raise BadInput(
            f"'{folder}' holds a link that leads out of it, '{file.name}': headscan follows none "
            "such."
        )


def _shards(index: Path) -> list[Path]:
    try:
        read = json.loads(index.read_text("utf-8"))
        files = [index.parent / name for name in sorted(set(read["weight_map"].values()))]
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise BadInput(f"'{index}' is not a valid index of weight files.") from error
    for file in files:
        if file.parent != index.parent:
            raise BadInput(
                f"'{index}' names a file outside its folder, '{file}': headscan reads none such."
            )
        if not file.is_file():
            raise BadInput(f"The weight file '{file}' is missing, though {INDEX} names it.")
    if not files or not isinstance(read.get("metadata"), dict):
        raise BadInput(
            f"'{index}' is not a valid index of weight files: it has no "
            f"{'metadata' if files else 'weights'}."
        )
    return files


def check_safetensors(file: Path) -> None:
    """Raise BadInput for a file that is truncated or no safetensors file; only its header is read.

    The format: 8 bytes, little-endian, the length of the header; the header as JSON, {name: {dtype,
    shape, data_offsets: [begin, end]}}; the tensors' bytes.
    """
    size = file.stat().st_size
    with file.open("rb") as stream:
        first = stream.read(8)
        length = int.from_bytes(first, "little")
        if len(first) < 8 or length < 2:
            raise BadInput(f"'{file}' is truncated or no safetensors file: it has no header.")
        if 8 + length > size:
            raise BadInput(
                f"'{file}' is truncated or no safetensors file: its header does not fit into its "
                f"{size} bytes."
            )
        raw = stream.read(length)
    try:
        header = json.loads(raw)
        promised = (
            8
            + length
            + max(
                (
                    entry["data_offsets"][1]
                    for name, entry in header.items()
                    if name != "__metadata__"
                ),
                default=0,
            )
        )
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise BadInput(
            f"'{file}' is damaged or no safetensors file: its header cannot be read."
        ) from error
    if promised != size:
        state = "truncated" if promised > size else "damaged"
        raise BadInput(f"'{file}' is {state}: it has {size} bytes, its header promises {promised}.")


# ---- Models in one .gguf file, as llama.cpp writes them. The header is read here; transformers unpacks the weights.

PLAIN = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
# The types of values, by their numbers: struct's letter for each. 8 is a string, 9 an array.
NUMBERS = {
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
STRING = 8
ARRAY = 9


@dataclass(frozen=True)
class Header:
    """What a .gguf file says of itself before its weights."""

    packing: (
        str  # the format of most of its weights: F32, F16, BF16, or blocks of few bits such as Q4_K
    )
    # the precision of the weights; None where they are packed in few bits
    dtype: torch.dtype | None
    tokenizer: bool  # whether the file holds a tokenizer

    @property
    def precision(self) -> torch.dtype:
        return self.dtype or torch.float32

    @property
    def notes(self) -> list[str]:
        rounded = (
            "The weights were rounded to few bits in the .gguf file (most of them as "
            f"{self.packing})."
        )
        return [rounded] if self.dtype is None else []


def is_gguf(path: Path) -> bool:
    """Whether a file is a .gguf file, by its name.

    >>> is_gguf(Path("qwen.GGUF"))
    True
    """
    return path.suffix.lower() == ".gguf"


def read_header(file: Path) -> Header:
    """The header of a .gguf file, and a check that the file is as long as it promises; the weights
    are not read.

    The format (versions 2 and 3, little-endian): "GGUF", the version; the numbers of tensors and of
    values; the values, each a name, a type and the value; of each tensor the name, its dimensions,
    its type and its offset; the tensors.

    Raises BadInput: the packages that read such files are not installed; the file is truncated, or
    is no .gguf file.
    """
    for package in ("gguf", "accelerate"):
        if find_spec(package) is None:
            raise BadInput(
                f'A .gguf file needs the package {package}: pip install "headscan[gguf]".'
            )
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    if not file.is_file():
        raise BadInput(f"'{file}' is no file.")
    entries: Counter[str] = Counter()
    end = 0
    try:
        with (
            file.open("rb") as stream,
            mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as raw,
        ):
            walk = _Walk(raw)
            size = len(raw)
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
                entries[packing.name] += prod(shape)
                end = max(end, offset + prod(shape) // block * width)
    except BadInput:
        raise
    except (struct.error, ValueError, OverflowError) as error:
        raise BadInput(f"'{file}' is truncated or damaged: its header cannot be read.") from error
    if not entries:
        raise BadInput(f"'{file}' holds no weights.")
    # The tensors begin at a multiple of 32 bytes, where the file names no other alignment.
    end += walk.place if "general.alignment" in names else -(-walk.place // 32) * 32
    if end > size:
        raise BadInput(f"'{file}' is truncated: it has {size} bytes, its header promises {end}.")
    # Norms stay in float32 beside weights of half precision; the weights are most of the entries.
    [(most, _)] = entries.most_common(1)
    return Header(
        most,
        PLAIN[most] if entries.keys() <= PLAIN.keys() else None,
        "tokenizer.ggml.tokens" in names,
    )


class _Walk:
    def __init__(self, raw: mmap.mmap) -> None:
        self.raw = raw
        self.place = 0

    def take(self, form: str) -> tuple[Any, ...]:
        values = struct.unpack_from(f"<{form}", self.raw, self.place)
        self.place += struct.calcsize(f"<{form}")
        return values

    def string(self) -> bytes:
        length = self.take("Q")[0]
        if length > len(self.raw):
            raise ValueError("a string longer than the file")
        self.place += length
        return self.raw[self.place - length : self.place]

    def value(self) -> str:
        """The name of a value; the value itself is skipped."""
        name = self.string().decode()
        self._skip(self.take("I")[0])
        return name

    def _skip(self, kind: int, count: int = 1) -> None:
        if kind in NUMBERS:
            self.place += count * struct.calcsize(f"<{NUMBERS[kind]}")
        elif kind in (STRING, ARRAY):
            for _ in range(count):
                self.string() if kind == STRING else self._skip(*self.take("IQ"))
        else:
            raise ValueError("an unknown type of value")


# ---- The weights in the file against the weights of the model

# Weights that may be missing, as they feed no site: poolers, and the head of BERT's next-sentence
# task.
HARMLESS = ("pooler", "seq_relationship")


def settled(network: Any, report: Mapping[str, Any], name: str) -> tuple[Any, list[str]]:
    """The network, every weight of which came from the file, and the sentences that a reader of its
    numbers needs.

    transformers fills what the file lacks with fresh random numbers and only warns, so a scan would
    measure noise. Where the head alone is missing (a sentence encoder whose configuration still
    names the masked language model that it was made from), the model without its head is complete,
    and is what is read. `report` is `output_loading_info`.

    Raises BadInput: weights of other shapes; weights that are missing, and not the head's alone.
    """
    wrong = sorted(str(entry[0]) for entry in report.get("mismatched_keys", ()))
    unfit = f"The weights of '{name}' do not fit its configuration:"
    if wrong:
        raise BadInput(f"{unfit} {len(wrong)} of other shapes ({_few(wrong)}).")
    missing, spare = (
        sorted(key for key in report[keys] if not any(part in key for part in HARMLESS))
        for keys in ("missing_keys", "unexpected_keys")
    )
    notes: list[str] = []
    if missing:
        asked = type(network).__name__
        base = _without_head(network, missing)
        if base is None:
            raise BadInput(
                f"{unfit} {len(missing)} that {asked} needs are not in the file ({_few(missing)}) "
                "and would be random."
            )
        notes.append(
            f"The configuration of '{name}' names {asked}, but the file lacks its head "
            f"({_few(missing)}): it is read as {type(base).__name__}, which has no logits."
        )
        network = base
    if spare:
        notes.append(
            f"{len(spare)} weights in the file are not used by {type(network).__name__} "
            f"({_few(spare)})."
        )
    return network, notes


def _without_head(network: Any, missing: Sequence[str]) -> nn.Module | None:
    """The model inside `network` that its head reads, or None where there is none or where it lacks
    weights, too.
    """
    prefix = getattr(network, "base_model_prefix", "")
    base = getattr(network, prefix, None) if prefix else None
    if not isinstance(base, nn.Module) or any(key.startswith(f"{prefix}.") for key in missing):
        return None
    return base


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:2]) + (", ..." if len(names) > 2 else "")


# ---- Weights of 8 and 4 bits, by bitsandbytes or torchao

PACKERS = {"bitsandbytes": "quantize", "torchao": "torchao"}  # the extra that installs each


def check_packer(config: Any, name: str) -> None:
    """Raise BadInput where a model was saved in few bits and the package that reads them is not
    installed.
    """
    packed = getattr(config, "quantization_config", None) or {}
    method = str((packed if isinstance(packed, dict) else vars(packed)).get("quant_method"))
    if method in PACKERS and find_spec(method) is None:
        raise BadInput(
            f"The weights of '{name}' were packed by {method}: pip install "
            f'"headscan[{PACKERS[method]}]".'
        )


def check_quantization() -> None:
    """Raise BadInput where bitsandbytes, or accelerate beside it, is not installed."""
    if find_spec("bitsandbytes") is None:
        raise BadInput(
            'Quantisation needs the package bitsandbytes: pip install "headscan[quantize]".'
        )
    require_accelerate("Quantisation")


def require_accelerate(what: str) -> None:
    """Raise BadInput where accelerate, which places weights on devices, is not installed."""
    if find_spec("accelerate") is None:
        raise BadInput(f'{what} needs the package accelerate: pip install "headscan[quantize]".')


def quantization(name: Literal["8bit", "4bit"], precision: torch.dtype | str) -> Any:
    """The BitsAndBytesConfig for "8bit" or "4bit", computing in `precision` (bfloat16 for "auto")."""
    import transformers

    # bitsandbytes logs a line for every product of every pass: that inputs are cast, which is what
    # 8 bits are.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    config: Any = transformers.BitsAndBytesConfig
    if name == "8bit":
        return config(load_in_8bit=True)
    compute = precision if isinstance(precision, torch.dtype) else torch.bfloat16
    return config(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=compute)
