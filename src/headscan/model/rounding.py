"""Roundings of a model's matrices to blocks of few bits, as in llama.cpp's .gguf files."""

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from headscan.model.matrices import matrices

RoundingName = Literal["q8_0", "q4_0", "q4_k", "q2_k"]

BLOCK = 256
"""Weights of a block of the K formats."""
BLOCKS_AT_ONCE = 512
"""Blocks that are packed together, so that they stay in the processor's cache."""
SMALLER_FORMAT = {"Q4_K": "Q5_0", "Q2_K": "Q4_0"}
"""The formats of rows that are no multiple of 256, as in llama.cpp."""


def pack_k(rows: Tensor, bits: Literal[4, 2]) -> Tensor:
    """Return weights [n, 256] as blocks of Q4_K (uint8 [n, 144]) or Q2_K (uint8 [n, 84]).

    A block has sub-blocks of 32 (16) weights x ≈ d·s·q − m·o, q of 4 (2) bits, with a scale s and
    an offset o of 6 (4) bits and two numbers d, m of 16 bits for all of them. They span least to
    greatest weight, and 0. llama.cpp searches for narrower ranges of less error: its own files cost
    less.
    """
    sub_block, top_step, top_code = (32, 63, 15) if bits == 4 else (16, 15, 3)
    # [sub_block, n, k]: reductions run along memory
    weights = rows.reshape(-1, BLOCK // sub_block, sub_block).movedim(2, 0).contiguous()
    low = weights.amin(0).clamp_(max=0)
    high = weights.amax(0).clamp_(min=0)
    scale = (high - low) / top_code
    offset = -low

    d = scale.amax(1, keepdim=True).div(top_step).half()
    m = offset.amax(1, keepdim=True).div(top_step).half()
    s = _quotient(scale, d.float()).round_().clamp_(0, top_step)
    o = _quotient(offset, m.float()).round_().clamp_(0, top_step)
    shifted = weights + m.float() * o
    codes = _quotient(shifted, d.float() * s).round_().clamp_(0, top_code)

    q = codes.to(torch.uint8).movedim(0, 2).reshape(len(rows), -1)
    s = s.to(torch.uint8)
    o = o.to(torch.uint8)
    units = [d.view(torch.uint8), m.view(torch.uint8)]
    if bits == 4:
        return torch.cat([*units, *_packed_scales(s, o), _packed_halves(q)], dim=1)
    return torch.cat([s | o << 4, _packed_quarters(q), *units], dim=1)


def _quotient(values: Tensor, units: Tensor) -> Tensor:
    """Return values / units, 0 where the unit is 0."""
    return values * torch.where(units > 0, 1 / units, 0)


def _packed_scales(s: Tensor, o: Tensor) -> list[Tensor]:
    """Return eight scales and eight offsets of 6 bits in 12 bytes, in the layout of Q4_K."""
    first_scales = s[:, :4] | s[:, 4:] >> 4 << 6
    first_offsets = o[:, :4] | o[:, 4:] >> 4 << 6
    lower_bits = s[:, 4:] & 15 | (o[:, 4:] & 15) << 4
    return [first_scales, first_offsets, lower_bits]


def _packed_halves(q: Tensor) -> Tensor:
    """Return codes of 4 bits, two in a byte."""
    first, second = q.reshape(-1, 4, 2, 32).unbind(2)
    return (first | second << 4).flatten(1)


def _packed_quarters(q: Tensor) -> Tensor:
    """Return codes of 2 bits, four in a byte."""
    first, second, third, fourth = q.reshape(-1, 2, 4, 32).unbind(2)
    return (first | second << 2 | third << 4 | fourth << 6).flatten(1)


class PackedMatrix(NamedTuple):
    """The bytes of a matrix in a .gguf format, the weights that they stand for, and the format."""

    data: Any
    weights: Tensor
    format: str


def packed(matrix: Tensor, format_name: str) -> PackedMatrix:
    """Return a matrix [n, d] packed in a .gguf format.

    Where rows do not fit, it is a smaller format or F16.
    """
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants

    width = matrix.shape[1]
    if width % BLOCK:
        format_name = SMALLER_FORMAT.get(format_name, format_name)
    if width % GGML_QUANT_SIZES[GGMLQuantizationType[format_name]][0]:
        format_name = "F16"
    format_code = GGMLQuantizationType[format_name]
    if format_name in SMALLER_FORMAT:
        bits: Literal[4, 2] = 4 if format_name == "Q4_K" else 2
        groups = matrix.reshape(-1, BLOCK).split(BLOCKS_AT_ONCE)
        blocks = torch.cat([pack_k(group, bits) for group in groups])
        data: Any = blocks.reshape(len(matrix), -1).numpy()
    else:
        data = quants.quantize(matrix.numpy(), format_code)
    weights = torch.from_numpy(quants.dequantize(data, format_code))
    return PackedMatrix(data, weights, format_name)


def round_block(block: nn.Module, name: RoundingName) -> tuple[int, set[str]]:
    """Round the matrices of a block in place, those of experts, too.

    Returns:
        The bytes of the block's weights when they are packed, and the formats that were used.
    """
    size = sum(weight.nbytes for weight in block.parameters())
    formats: set[str] = set()
    for matrix in matrices(block):
        rounded = packed(matrix.rows.float().cpu().contiguous(), name.upper())
        matrix.set_rows(rounded.weights)
        size += rounded.data.nbytes - matrix.weight.nbytes
        formats.add(rounded.format)
    return size, formats
