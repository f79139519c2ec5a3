"""Roundings of a model's matrices to blocks of few bits, as llama.cpp writes them into .gguf files."""

from typing import Any, Literal

import torch
from torch import Tensor, nn

RoundingName = Literal["q8_0", "q4_0", "q4_k", "q2_k"]
# weights of a block of the K formats; such blocks at once, a piece near the processor
SUPER = 256
AT_ONCE = 512
# of rows that are no multiple of 256, as llama.cpp has it
SMALLER = {"Q4_K": "Q5_0", "Q2_K": "Q4_0"}


def pack_k(rows: Tensor, bits: Literal[4, 2]) -> Tensor:
    """Weights [n, 256] as blocks of Q4_K (uint8 [n, 144]) or Q2_K ([n, 84]).

    A block has sub-blocks of 32 (16) weights x ≈ d·s·q − m·o, q of 4 (2) bits, with a scale s and
    an offset o of 6 (4) bits and two numbers d, m of 16 bits for all of them. They span least to
    greatest weight, and 0. llama.cpp searches for narrower ranges of less error: its own files cost
    less.
    """
    size, most, top = (32, 63, 15) if bits == 4 else (16, 15, 3)
    # [size, n, k]: reductions run along memory
    parts = rows.reshape(-1, SUPER // size, size).movedim(2, 0).contiguous()
    low = parts.amin(0).clamp_(max=0)
    high = parts.amax(0).clamp_(min=0)
    scale = (high - low) / top
    offset = -low
    d, m = (values.amax(1, keepdim=True).div(most).half() for values in (scale, offset))
    s, o = (
        _over(values, unit.float()).round_().clamp_(0, most)
        for values, unit in ((scale, d), (offset, m))
    )
    q = (
        _over(parts + m.float() * o, d.float() * s)
        .round_()
        .clamp_(0, top)
        .to(torch.uint8)
        .movedim(0, 2)
        .reshape(len(rows), -1)
    )
    s = s.to(torch.uint8)
    o = o.to(torch.uint8)
    units = [one.view(torch.uint8) for one in (d, m)]
    if bits == 4:
        pairs = q.reshape(-1, 4, 2, 32)
        scales = [
            s[:, :4] | s[:, 4:] >> 4 << 6,
            o[:, :4] | o[:, 4:] >> 4 << 6,
            s[:, 4:] & 15 | (o[:, 4:] & 15) << 4,
        ]
        return torch.cat(
            [*units, *scales, (pairs[:, :, 0] | pairs[:, :, 1] << 4).flatten(1)], dim=1
        )
    four = q.reshape(-1, 2, 4, 32)
    quarters = four[:, :, 0] | four[:, :, 1] << 2 | four[:, :, 2] << 4 | four[:, :, 3] << 6
    return torch.cat([s | o << 4, quarters.flatten(1), *units], dim=1)


def _over(values: Tensor, units: Tensor) -> Tensor:
    """The quotient, 0 where the unit is 0."""
    return values * torch.where(units > 0, 1 / units, 0)


def packed(matrix: Tensor, kind: str) -> tuple[Any, Tensor, str]:
    """The bytes of a matrix [n, d] in a .gguf format, the weights that they stand for, and the
    format: a smaller one, or F16, where rows do not fit.
    """
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants

    kind = SMALLER.get(kind, kind) if matrix.shape[1] % SUPER else kind
    kind = "F16" if matrix.shape[1] % GGML_QUANT_SIZES[GGMLQuantizationType[kind]][0] else kind
    if kind in SMALLER:
        pieces = [
            pack_k(one, 4 if kind == "Q4_K" else 2)
            for one in matrix.reshape(-1, SUPER).split(AT_ONCE)
        ]
        data: Any = torch.cat(pieces).reshape(len(matrix), -1).numpy()
    else:
        data = quants.quantize(matrix.numpy(), GGMLQuantizationType[kind])
    return data, torch.from_numpy(quants.dequantize(data, GGMLQuantizationType[kind])), kind


def round_block(block: nn.Module, name: RoundingName) -> tuple[int, set[str]]:
    """Round the matrices of a block's linear layers in place; the bytes of its weights then, and
    the formats that were used.
    """
    size = sum(one.nbytes for one in block.parameters())
    formats = set[str]()
    for layer in block.modules():
        if isinstance(weight := getattr(layer, "weight", None), nn.Parameter) and weight.ndim == 2:
            # GPT-2 keeps its matrices as [inputs, outputs]
            turned = type(layer).__name__ == "Conv1D"
            matrix = (weight.T if turned else weight).detach().float().cpu()
            data, rounded, kind = packed(matrix.contiguous(), name.upper())
            weight.data.copy_(rounded.T if turned else rounded)
            size = size + data.nbytes - weight.nbytes
            formats = formats | {kind}
    return size, formats
