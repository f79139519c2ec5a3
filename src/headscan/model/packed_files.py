"""Weight files in which GPTQ, AWQ, compressed-tensors and FP8 tools packed matrices.

They are unpacked without these tools' packages. A matrix [n, d] is (q − z)·s, with whole numbers
(or 8-bit floats) q and, for each group of inputs, a scale s and a zero point z.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headscan.model.weights import stored_tensors
from headscan.run import BadInput

AWQ_COLUMNS = (0, 4, 1, 5, 2, 6, 3, 7)
"""The places in a number of 32 bits of eight neighbouring columns, as AWQ packs them."""

WHOLE_BITS = (2, 4, 8)
"""Bits of codes of which whole ones fit into 32 bits."""

DROPPED = ("input_scale", "output_scale", "input_zero_point", "k_scale", "v_scale", "q_scale")
"""Last names of tensors that round activations, which is left out."""

PARTS = {
    "qweight",
    "qzeros",
    "scales",
    "g_idx",
    "weight_packed",
    "weight_scale",
    "weight_scale_inv",
    "weight_shape",
    "weight_zero_point",
    "weight_g_idx",
}
"""Last names of the tensors that a packed matrix is made of, beside "weight" itself."""

Tensors = Mapping[str, Tensor]
"""The tensors of a matrix by their last names."""


@dataclass(frozen=True)
class Packing:
    """The packing of a model's matrices, by its configuration.

    Attributes:
        method: "gptq", "awq", "compressed-tensors" or "fp8".
        bits: of a code.
        block: rows and columns that share a scale; 0: all.
        offset: what is added to zero points; the first GPTQ files store them less one.
    """

    method: str
    bits: int
    block: tuple[int, int]
    offset: int = 0

    @property
    def notes(self) -> list[str]:
        """Sentences that a reader of the model's numbers needs."""
        return [
            f"The weights were packed by {self.method} in {self.bits} bits; they are unpacked "
            "here, and activations are not rounded."
        ]


def packing_of(config: Any) -> Packing | None:
    """Return the packing of a model that is read here; None where there is none, or another."""
    settings = getattr(config, "quantization_config", None) or {}
    if not isinstance(settings, dict):
        settings = vars(settings)
    method = str(getattr(settings.get("quant_method"), "value", settings.get("quant_method")))
    reader = READERS.get(method)
    return None if reader is None else reader(settings)


def _gptq(settings: Mapping[str, Any]) -> Packing | None:
    bits = int(settings.get("bits", 4))
    offset = 0 if settings.get("checkpoint_format") == "gptq_v2" else 1
    group = max(0, int(settings.get("group_size", -1)))
    return Packing("gptq", bits, (1, group), offset) if bits in WHOLE_BITS else None


def _awq(settings: Mapping[str, Any]) -> Packing | None:
    version = str(settings.get("version", "gemm")).lower()
    if version != "gemm" or settings.get("bits", 4) != 4:
        return None
    return Packing("awq", 4, (1, max(0, int(settings.get("group_size", -1)))))


def _fp8(settings: Mapping[str, Any]) -> Packing:
    rows, columns = settings.get("weight_block_size") or (0, 0)
    return Packing("fp8", 8, (rows, columns))


def _compressed_tensors(settings: Mapping[str, Any]) -> Packing | None:
    """Return the packing of a model whose groups all have one scheme for weights."""
    groups = settings.get("config_groups") or {}
    schemes = [group.get("weights") or {} for group in groups.values()]
    schemes = [scheme for scheme in schemes if scheme]
    if not schemes or any(scheme != schemes[0] for scheme in schemes):
        return None
    scheme = schemes[0]
    bits = int(scheme.get("num_bits", 8))
    strategy = scheme.get("strategy")
    block = (1, 0)
    if strategy == "tensor":
        block = (0, 0)
    elif strategy == "group":
        block = (1, int(scheme["group_size"]))
    elif strategy == "block":
        rows, columns = scheme["block_structure"]
        block = (rows, columns)
    if strategy == "tensor_group" or bits not in WHOLE_BITS:
        return None
    return Packing("compressed-tensors", bits, block)


READERS: dict[str, Callable[[Mapping[str, Any]], Packing | None]] = {
    "gptq": _gptq,
    "awq": _awq,
    "fp8": _fp8,
    "compressed-tensors": _compressed_tensors,
}


def unpacked_weights(
    files: Iterable[Path], packing: Packing, dtype: torch.dtype
) -> dict[str, Tensor]:
    """Return all weights of safetensors files by name, packed matrices as plain ones.

    Raises:
        BadInput: where a file is damaged, or the tensors of a matrix are not those of the packing.
    """
    weights: dict[str, Tensor] = {}
    packed: dict[str, dict[str, Tensor]] = defaultdict(dict)
    for name, tensor in stored_tensors(files):
        module, _, last = name.rpartition(".")
        if last in PARTS:
            packed[module][last] = tensor[...]
        elif last not in DROPPED:
            weights[name] = tensor[...]
    for module, parts in packed.items():
        name = f"{module}.weight"
        if name in weights:
            parts["weight"] = weights[name]
        try:
            weights[name] = unpacked(parts, packing).to(dtype)
        except (KeyError, RuntimeError, IndexError) as error:
            raise BadInput(
                f"The tensors of {module} ({', '.join(sorted(parts))}) are not those of a matrix "
                f"that {packing.method} packed: {error}."
            ) from error
    return weights


def unpacked(parts: Tensors, packing: Packing) -> Tensor:
    """Return the matrix [outputs, inputs] in float32 that some tensors stand for."""
    if packing.method == "gptq":
        return _unpacked_gptq(parts, packing)
    if packing.method == "awq":
        return _unpacked_awq(parts, packing)
    scale = parts["weight_scale_inv"] if "weight_scale_inv" in parts else parts["weight_scale"]
    if "weight_packed" not in parts:
        codes = parts["weight"].float()
        zeros = parts.get("weight_zero_point")
    else:
        half = 1 << (packing.bits - 1)
        outputs, inputs = (int(size) for size in parts["weight_shape"].tolist())
        codes = codes_of(parts["weight_packed"], packing.bits, 1)[:outputs, :inputs].float() - half
        zeros = parts.get("weight_zero_point")
        if zeros is not None and zeros.dtype == torch.int32:
            zeros = codes_of(zeros, packing.bits, 0)[:outputs] - half
    order = parts.get("weight_g_idx")
    if zeros is not None:
        codes = codes - _spread(zeros.float(), codes, packing.block, order)
    weights: Tensor = codes * _spread(scale.float(), codes, packing.block, order)
    return weights


def codes_of(packed: Tensor, bits: int, axis: int) -> Tensor:
    """Return the codes in numbers of 32 bits [n, d], lowest bits first along an axis."""
    shifts = torch.arange(0, 32, bits)
    codes = (packed.long().unsqueeze(-1) >> shifts) & ((1 << bits) - 1)
    if axis == 1:
        return codes.flatten(1)
    return codes.movedim(-1, 1).flatten(0, 1)


def _spread(values: Tensor, like: Tensor, block: tuple[int, int], order: Tensor | None) -> Tensor:
    """Return the scales of blocks, repeated for each weight of a matrix.

    `order`: the group of each column, where groups are not of neighbours.
    """
    if values.numel() == 1:
        return values.reshape(1, 1)
    values = values.reshape(len(values), -1)
    rows, columns = block
    if rows > 1:
        values = values.repeat_interleave(rows, 0)[: len(like)]
    if values.shape[1] == 1:
        return values
    if order is not None:
        return values[:, order.long()]
    return values.repeat_interleave(columns, 1)[:, : like.shape[1]]


def _unpacked_gptq(parts: Tensors, packing: Packing) -> Tensor:
    """Return a matrix whose codes are packed along the inputs, zero points along the outputs."""
    codes = codes_of(parts["qweight"], packing.bits, 0)
    zeros = codes_of(parts["qzeros"], packing.bits, 1) + packing.offset
    scales = parts["scales"].float()
    group = parts.get("g_idx")
    if group is None:
        group = torch.arange(len(codes)) // (packing.block[1] or len(codes))
    group = group.long()
    weights: Tensor = (codes - zeros[group]).float() * scales[group]
    return weights.T.contiguous()


def _unpacked_awq(parts: Tensors, packing: Packing) -> Tensor:
    """Return a matrix whose codes and zero points are packed along the outputs, eight at a time."""
    codes = _awq_codes(parts["qweight"])
    size = packing.block[1] or len(codes)
    zeros = _awq_codes(parts["qzeros"]).repeat_interleave(size, 0)[: len(codes)]
    scales = parts["scales"].float().repeat_interleave(size, 0)[: len(codes)]
    weights: Tensor = (codes - zeros).float() * scales
    return weights.T.contiguous()


def _awq_codes(packed: Tensor) -> Tensor:
    codes = codes_of(packed, 4, 1)
    ordered: Tensor = codes.unflatten(1, (-1, 8))[:, :, list(AWQ_COLUMNS)]
    return ordered.flatten(1)
