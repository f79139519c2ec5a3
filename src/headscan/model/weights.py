"""The weight files of a model: that they are there, are safetensors, and are whole. Checked before anything is built."""

from __future__ import annotations

import json
from pathlib import Path

from headscan.run import BadInput

__all__ = ["check_safetensors", "weight_files"]

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.h5", "*.msgpack", "*.pkl")


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files that make up the model in `folder`, each checked to be whole.

    Raises:
        BadInput: none there, only pickle weights, a shard missing, a damaged index, a truncated file.
    """
    if (folder / SINGLE).is_file():
        files = [folder / SINGLE]
    elif (folder / INDEX).is_file():
        files = _shards(folder / INDEX)
    else:
        pickles = sorted(path.name for pattern in PICKLES for path in folder.glob(pattern))
        if pickles:
            raise BadInput(
                f"'{folder}' holds weights as {pickles[0]} only, a format that can run code when it is opened; "
                "headscan reads safetensors only (save the model again with save_pretrained)."
            )
        raise BadInput(f"'{folder}' has no weights: there is neither {SINGLE} nor {INDEX}.")
    for file in files:
        check_safetensors(file)
    return files


def _shards(index: Path) -> list[Path]:
    try:
        names = sorted(set(json.loads(index.read_text("utf-8"))["weight_map"].values()))
        files = [index.parent / Path(name).name for name in names]
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise BadInput(f"'{index}' is not a valid index of weight files.") from error
    for file in files:
        if not file.is_file():
            raise BadInput(f"The weight file '{file}' is missing, though {INDEX} names it.")
    return files


def check_safetensors(file: Path) -> None:
    """Read the header and compare the length it promises with the file's; the tensors themselves are not read.

    The format: 8 bytes, little-endian, the length of the header; the header as JSON, {name: {dtype, shape,
    data_offsets: [begin, end]}}; the tensors' bytes.

    Raises:
        BadInput: the file is truncated or is no safetensors file.
    """
    size = file.stat().st_size
    with file.open("rb") as stream:
        first = stream.read(8)
        length = int.from_bytes(first, "little")
        if len(first) < 8 or length < 2:
            raise BadInput(f"'{file}' is truncated or no safetensors file: it has no header.")
        if 8 + length > size:
            raise BadInput(
                f"'{file}' is truncated or no safetensors file: its header does not fit into its {size} bytes."
            )
        raw = stream.read(length)
    try:
        header = json.loads(raw)
        end = max((entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"), default=0)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise BadInput(f"'{file}' is damaged or no safetensors file: its header cannot be read.") from error
    if 8 + length + end != size:
        state = "truncated" if 8 + length + end > size else "damaged"
        raise BadInput(f"'{file}' is {state}: it has {size} bytes, its header promises {8 + length + end}.")
