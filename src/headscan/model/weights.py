"""The weight files of a model: whether they exist, are safetensors and whole, and fit the model.

All but the last is checked before the model is built.
"""

import json
import logging
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from headscan.run import BadInput
from headscan.run.files import leads_out, read_at_most

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
ADAPTER = "adapter_model.safetensors"
ADAPTER_CONFIG = "adapter_config.json"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.h5", "*.msgpack", "*.pkl")

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
"""The files of a tokenizer, which are read beside a .gguf file too."""
DESCRIBING = (
    *BESIDE,
    "*config*.json",
    "*.py",
    "modules.json",
    "*.index.json",
    "*/config.json",
    "*_Dense/model.safetensors",
)
"""The files that say what a model is: tokenizer, configurations, code, pooling."""

LARGEST_FILE = 2**28
"""Bytes of a file that describes a model; the largest tokenizers have a tenth of it."""

HARMLESS = ("pooler", "seq_relationship")
"""Weights that may be missing, as they feed no site: poolers, and BERT's next-sentence head."""

EXTRA_OF_PACKER = {"bitsandbytes": "quantize", "torchao": "torchao"}
"""The extra of headscan that installs each package that packs weights in few bits."""


def stored_tensors(files: Iterable[Path]) -> Iterator[tuple[str, Any]]:
    """Yield the names and tensors of safetensors files, none of them read.

    Raises:
        BadInput: where the header of a file is damaged.
    """
    for file in files:
        try:
            handle = safe_open(file, "pt")
        except SafetensorError as error:
            raise BadInput(f"{file} is damaged: {error}.") from error
        for key in handle.keys():  # noqa: SIM118
            yield key, handle.get_slice(key)


def weight_files(folder: Path, single: str = SINGLE) -> list[Path]:
    """Return the safetensors files that make up the model in a folder, each checked to be whole.

    `single`: the name of the file where there is only one; that of an adapter is another.

    Raises:
        BadInput: where there are no weights or only pickles, a shard is missing, the index is
            damaged, or a file is truncated.
    """
    if (folder / single).is_file():
        files = [folder / single]
    elif single == SINGLE and (folder / INDEX).is_file():
        files = _shards(folder / INDEX)
    else:
        raise _no_weights(folder, single)
    for file in files:
        check_inside(folder, file)
        check_safetensors(file)
    return files


def _no_weights(folder: Path, single: str) -> BadInput:
    pickles = sorted(path.name for pattern in PICKLES for path in folder.glob(pattern))
    if pickles:
        return BadInput(
            f"'{folder}' holds weights as {pickles[0]} only, a format that can run code when it is "
            "opened; headscan reads safetensors only (save the model again with save_pretrained)."
        )
    missing = f"neither {SINGLE} nor {INDEX}" if single == SINGLE else f"no {single}"
    return BadInput(f"'{folder}' has no weights: there is {missing}.")


def describing_files(folder: Path, patterns: Sequence[str] = DESCRIBING) -> list[Path]:
    """Return the files of a model's folder that describe it.

    Raises:
        BadInput: where one is a link that leads out of the folder.
    """
    matches = {path for pattern in patterns for path in folder.glob(pattern)}
    files = sorted(path for path in matches if path.is_file())
    for file in files:
        check_inside(folder, file)
        _check_file(file)
    return files


def check_readable(folder: Path) -> None:
    """Raise BadInput where a file that describes a model is no regular file, or far too large.

    transformers reads such files whole.
    """
    for pattern in DESCRIBING:
        for path in folder.glob(pattern):
            if path.exists() and not path.is_dir():
                _check_file(path)


def _check_file(path: Path) -> None:
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise BadInput(f"'{path}' is no regular file: headscan does not read it.")
    if status.st_size > LARGEST_FILE and path.suffix != ".safetensors":
        raise BadInput(
            f"'{path}' has {status.st_size:,} bytes; a file that describes a model has at most "
            f"{LARGEST_FILE:,}."
        )


def check_inside(folder: Path, file: Path) -> None:
    """Raise BadInput where a file is a link that leads out of its folder."""
    if leads_out(folder, file):
        raise BadInput(
            f"'{folder}' holds a link that leads out of it, '{file.name}': headscan follows none "
            "such."
        )


def _shards(index: Path) -> list[Path]:
    """Return the files that an index names."""
    try:
        content = json.loads(read_at_most(index, LARGEST_FILE))
        files = [index.parent / name for name in sorted(set(content["weight_map"].values()))]
    except (
        OSError,
        ValueError,
        KeyError,
        AttributeError,
        TypeError,
        RecursionError,
    ) as error:
        raise BadInput(f"'{index}' is not a valid index of weight files.") from error
    for file in files:
        if file.parent != index.parent:
            raise BadInput(
                f"'{index}' names a file outside its folder, '{file}': headscan reads none such."
            )
        if not file.is_file():
            raise BadInput(f"The weight file '{file}' is missing, though {INDEX} names it.")
    if not files or not isinstance(content.get("metadata"), dict):
        missing = "metadata" if files else "weights"
        raise BadInput(f"'{index}' is not a valid index of weight files: it has no {missing}.")
    return files


def check_safetensors(file: Path) -> None:
    """Raise BadInput for a file that is truncated or no safetensors file; only its header is read.

    The format: 8 bytes, little-endian, the length of the header; the header as JSON, {name: {dtype,
    shape, data_offsets: [begin, end]}}; the tensors' bytes.
    """
    size = file.stat().st_size
    with file.open("rb") as stream:
        length_bytes = stream.read(8)
        length = int.from_bytes(length_bytes, "little")
        if len(length_bytes) < 8 or length < 2:
            raise BadInput(f"'{file}' is truncated or no safetensors file: it has no header.")
        if 8 + length > size:
            raise BadInput(
                f"'{file}' is truncated or no safetensors file: its header does not fit into its "
                f"{size} bytes."
            )
        raw_header = stream.read(length)
    try:
        header = json.loads(raw_header)
        ends = [
            entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"
        ]
        promised = 8 + length + max(ends, default=0)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise BadInput(
            f"'{file}' is damaged or no safetensors file: its header cannot be read."
        ) from error
    if promised != size:
        state = "truncated" if promised > size else "damaged"
        raise BadInput(f"'{file}' is {state}: it has {size} bytes, its header promises {promised}.")


def settled(network: Any, report: Mapping[str, Any], name: str) -> tuple[Any, list[str]]:
    """Return the network with every weight from the file, and sentences that its readers need.

    transformers fills what the file lacks with fresh random numbers and only warns, so a scan would
    measure noise. Where the head alone is missing (a sentence encoder whose configuration still
    names the masked language model that it was made from), the model without its head is complete
    and is returned.

    Args:
        report: `output_loading_info` of transformers.

    Raises:
        BadInput: for weights of other shapes, and missing weights that are not the head's alone.
    """
    refusal = f"The weights of '{name}' do not fit its configuration:"
    mismatched = sorted(str(entry[0]) for entry in report.get("mismatched_keys", ()))
    if mismatched:
        raise BadInput(f"{refusal} {len(mismatched)} of other shapes ({_few(mismatched)}).")
    missing = _important(report["missing_keys"])
    unused = _important(report["unexpected_keys"])
    notes: list[str] = []
    if missing:
        declared = type(network).__name__
        base = _without_head(network, missing)
        if base is None:
            raise BadInput(
                f"{refusal} {len(missing)} that {declared} needs are not in the file "
                f"({_few(missing)}) and would be random."
            )
        network = base
        notes.append(
            f"The configuration of '{name}' names {declared}, but the file lacks its head "
            f"({_few(missing)}): it is read as {type(base).__name__}, which has no logits."
        )
    if unused:
        notes.append(
            f"{len(unused)} weights in the file are not used by {type(network).__name__} "
            f"({_few(unused)})."
        )
    return network, notes


def _important(keys: Sequence[str]) -> list[str]:
    return sorted(key for key in keys if not any(part in key for part in HARMLESS))


def _without_head(network: Any, missing: Sequence[str]) -> nn.Module | None:
    """Return the model inside a network that its head reads.

    None where there is none, or where it lacks weights, too.
    """
    prefix = getattr(network, "base_model_prefix", "")
    base = getattr(network, prefix, None) if prefix else None
    if not isinstance(base, nn.Module) or any(key.startswith(f"{prefix}.") for key in missing):
        return None
    return base


def _few(names: Sequence[str]) -> str:
    text = ", ".join(names[:2])
    return text + ", ..." if len(names) > 2 else text


def check_packer(config: Any, name: str) -> None:
    """Raise BadInput where a model was packed in few bits by a package that is not installed."""
    quantization_config = getattr(config, "quantization_config", None) or {}
    if not isinstance(quantization_config, dict):
        quantization_config = vars(quantization_config)
    method = str(quantization_config.get("quant_method"))
    if method in EXTRA_OF_PACKER and find_spec(method) is None:
        raise BadInput(
            f"The weights of '{name}' were packed by {method}: pip install "
            f'"headscan[{EXTRA_OF_PACKER[method]}]".'
        )


def check_quantization() -> None:
    """Raise BadInput where bitsandbytes, or accelerate beside it, is not installed."""
    if find_spec("bitsandbytes") is None:
        raise BadInput(
            'Quantisation needs the package bitsandbytes: pip install "headscan[quantize]".'
        )
    require_accelerate("Quantisation")


def require_accelerate(purpose: str) -> None:
    """Raise BadInput where accelerate, which moves weights to devices, is not installed."""
    if find_spec("accelerate") is None:
        raise BadInput(f'{purpose} needs the package accelerate: pip install "headscan[quantize]".')


def quantization(name: Literal["8bit", "4bit"], precision: torch.dtype | str) -> Any:
    """Return the BitsAndBytesConfig that computes in `precision` (bfloat16 for "auto")."""
    import transformers

    # bitsandbytes logs a line for every product of every pass: that inputs are cast to 8 bits.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    config: Any = transformers.BitsAndBytesConfig
    if name == "8bit":
        return config(load_in_8bit=True)
    compute = precision if isinstance(precision, torch.dtype) else torch.bfloat16
    return config(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=compute)
