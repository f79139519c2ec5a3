"""LoRA adapters in the files of peft: what they add to the matrices of a model.

An adapter adds scale · B A to a matrix, with B [n, r] and A [r, m].
"""

import re
from copy import deepcopy
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headscan.model.identity import Origin
from headscan.model.lens import Lens
from headscan.model.weights import (
    ADAPTER,
    ADAPTER_CONFIG,
    check_inside,
    stored_tensors,
    weight_files,
)
from headscan.run import BadInput
from headscan.run.files import read_object

FACTOR = re.compile(r"(?:base_model\.model\.)?(.+)\.lora_(embedding_)?([AB])(?:\.weight)?")
MOVED_BASE = ("pissa", "olora", "corda", "loftq", "lora_ga")
"""Starts of an adapter's training that change the base's weights, too."""
PLAIN = ("F64", "F32", "BF16", "F16")
"""Precisions of plain weights, as safetensors name them."""


@dataclass(frozen=True)
class Factors:
    """The factors of what an adapter adds to a matrix.

    Attributes:
        name: of the module whose weight it is.
        A, B: slices of a file, read where they are indexed.
        turned: whether the weight is stored as [inputs, outputs].
    """

    name: str
    A: Any
    B: Any
    scale: float
    turned: bool

    @property
    def rank(self) -> int:
        return int(self.A.get_shape()[0])

    @property
    def shape(self) -> tuple[int, int]:
        """Return the shape of the weight."""
        rows = int(self.B.get_shape()[0])
        columns = int(self.A.get_shape()[1])
        return (columns, rows) if self.turned else (rows, columns)

    def change(self) -> Tensor:
        """Return what is added to the weight, in float32."""
        B: Tensor = self.B[:].float()
        product: Tensor = self.scale * (B @ self.A[:].float())
        return product.T if self.turned else product


@dataclass(frozen=True)
class Adapter:
    """An adapter's files, and the factors of every matrix that it changes.

    Attributes:
        parts: all tensors by name, none of them read.
        base: the name of the model that it was made for.
        others: tensors that are no factors of a matrix.
    """

    file: Path
    origin: Origin
    parts: dict[str, Any]
    factors: list[Factors]
    base: str
    others: int


def is_adapter(source: object) -> bool:
    """Return whether a source is a folder with an adapter."""
    return isinstance(source, str | Path) and (Path(source) / ADAPTER_CONFIG).is_file()


def read_adapter(folder: Path) -> Adapter:
    """Return the adapter in a folder; its tensors are not read yet.

    Raises:
        BadInput: where factors do not fit together, or what is added is not their product.
    """
    config = _config(folder)
    [file] = weight_files(folder, ADAPTER)
    parts = dict(stored_tensors([file]))
    pairs: dict[str, dict[str, Any]] = {}
    for key, part in parts.items():
        match = FACTOR.fullmatch(key)
        if match and len(part.get_shape()) == 2 and part.get_dtype() in PLAIN:
            pairs.setdefault(match[1], {})[(match[2] or "") + match[3]] = part
    factors = [_factors(name, pair, config, file) for name, pair in pairs.items()]
    files = {path.name: path for path in (folder / ADAPTER_CONFIG, file)}
    base = str(config.get("base_model_name_or_path") or "a model that it does not name")
    origin = Origin(str(folder), None, files)
    return Adapter(file, origin, parts, factors, base, len(parts) - 2 * len(factors))


def _factors(name: str, pair: dict[str, Any], config: dict[str, Any], file: Path) -> Factors:
    """Return the two factors of a matrix, which fit together."""
    embedding = "embedding_" if "embedding_A" in pair else ""
    if pair.keys() != {f"{embedding}A", f"{embedding}B"}:
        raise BadInput(f"'{file}' has one of the two factors of {name} only.")
    A = pair[f"{embedding}A"]
    B = pair[f"{embedding}B"]
    rank = A.get_shape()[0]
    inner = B.get_shape()[1]
    if rank != inner:
        raise BadInput(
            f"The factors of {name} in '{file}' are of the ranks {rank} and {inner}: they do "
            "not fit together."
        )
    turned = bool(embedding) or bool(config.get("fan_in_fan_out"))
    return Factors(name, A, B, _scale(file.parent, config, name, rank), turned)


def _config(folder: Path) -> dict[str, Any]:
    """Return the configuration of an adapter that adds the product of its factors."""
    check_inside(folder, folder / ADAPTER_CONFIG)
    config = read_object(folder / ADAPTER_CONFIG)
    start = str(config.get("init_lora_weights")).lower()
    merge = "merge the two, save them, and give the base as --base"
    reasons = {
        f"is an adapter of the type {config.get('peft_type')}; headscan reads LORA": (
            config.get("peft_type") != "LORA"
        ),
        f"is a DoRA adapter, which scales the base's weights, too: {merge}": config.get("use_dora"),
        f"began with {start}, which changes the base's weights, too: {merge}": start.startswith(
            MOVED_BASE
        ),
        f"adapts stacked parameters (target_parameters): {merge}": config.get("target_parameters"),
    }
    for reason, holds in reasons.items():
        if holds:
            raise BadInput(f"'{folder}' {reason}.")
    return config


def _scale(folder: Path, config: dict[str, Any], name: str, rank: int) -> float:
    """Return lora_alpha, or that of the first matching pattern, over the rank or its root."""
    patterns: Any = config.get("alpha_pattern") or {}
    alpha: Any = config.get("lora_alpha")
    try:
        for pattern, value in patterns.items():
            if re.match(rf"(.*\.)?({pattern})$", name):
                alpha = value
                break
        number = float(alpha)
        if isfinite(number) and rank:
            return number / (rank**0.5 if config.get("use_rslora") else rank)
        if not rank:
            return 0.0
    except (AttributeError, TypeError, ValueError, re.error):
        pass
    raise BadInput(
        f"'{folder / ADAPTER_CONFIG}' gives {name} no lora_alpha that is a finite number."
    )


@torch.no_grad()
def with_adapter(lens: Lens, folder: Path, *, copy: bool) -> Lens:
    """Return a model with an adapter merged into it: into a copy, or into the model itself.

    Raises:
        BadInput: where the model lacks a matrix that the adapter changes, or has another shape.
    """
    adapter = read_adapter(folder)
    model = deepcopy(lens.model) if copy else lens.model
    weights = dict(model.named_parameters(remove_duplicate=False))
    for factors in adapter.factors:
        weight = weights.get(f"{factors.name}.weight")
        if weight is None or tuple(weight.shape) != factors.shape:
            raise BadInput(
                f"'{folder}' is no adapter of {lens.name}: that has no matrix {factors.name} of "
                f"the shape {factors.shape[0]} x {factors.shape[1]}."
            )
        weight.data += factors.change().to(weight)
    merged = Lens(model, lens.tokenizer, name=folder.resolve().name)
    merged.origin = adapter.origin
    if adapter.others:
        merged.notes.append(f"{adapter.others} tensors of the adapter were left out.")
    return merged
