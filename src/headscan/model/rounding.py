"""Roundings of a model's matrices to blocks of few bits, as in llama.cpp's .gguf files."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from headscan.model.matrices import Matrix, matrices

RoundingName = Literal["q8_0", "q5_0", "q4_0", "q4_k", "q2_k"]

BITS = {"Q8_0": 8.5, "Q5_0": 5.5, "Q4_0": 4.5, "Q4_K": 4.5, "Q2_K": 2.625, "F16": 16.0}
"""Bits of a weight in each format, those of the scales with them."""

SMALL_BLOCK = 32
"""Weights of a block of the formats whose name ends with 0."""
BLOCK = 256
"""Weights of a block of the K formats."""
BLOCKS_AT_ONCE = 512
"""Blocks that are rounded together, so that they stay in the processor's cache."""
SMALLER_FORMAT = {"Q4_K": "Q5_0", "Q2_K": "Q4_0"}
"""The formats of rows that are no multiple of 256, as in llama.cpp."""


@dataclass(frozen=True)
class KCodes:
    """Weights [n, 256] in sub-blocks x ≈ d·s·q − m·o, of size k.

    Attributes:
        d, m: [n, 1], in 16 bits.
        s, o: scales and offsets [n, 256 / k], whole numbers.
        q: codes [k, n, 256 / k], whole numbers.
    """

    d: Tensor
    m: Tensor
    s: Tensor
    o: Tensor
    q: Tensor

    @property
    def weights(self) -> Tensor:
        """Return the weights [n, 256] that the codes stand for."""
        steps = self.d.float() * self.s
        offsets = self.m.float() * self.o
        weights: Tensor = steps * self.q - offsets
        return weights.movedim(0, 2).flatten(1)


def k_codes(rows: Tensor, bits: Literal[4, 2]) -> KCodes:
    """Return the codes of Q4_K or Q2_K for weights [n, 256].

    A block has sub-blocks of 32 (16) weights, with codes of 4 (2) bits, a scale and an offset of 6
    (4) bits each, and two numbers of 16 bits for all of them. They span least to greatest weight,
    and 0. llama.cpp searches for narrower ranges of less error: its own files cost less.
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
    q = _quotient(shifted, d.float() * s).round_().clamp_(0, top_code)
    return KCodes(d, m, s, o, q)


def _quotient(values: Tensor, units: Tensor) -> Tensor:
    """Return values / units, 0 where the unit is 0."""
    return values * torch.where(units > 0, 1 / units, 0)


def round_symmetric(rows: Tensor, bits: Literal[8, 5, 4]) -> Tensor:
    """Return weights [n, 32] as Q8_0, Q5_0 or Q4_0 stores them: x ≈ d·q, d in 16 bits.

    Q8_0 has codes −127 ... 127. The others have codes −2^(bits−1) ... 2^(bits−1) − 1, the lowest of
    which is the weight of greatest size.
    """
    if bits == 8:
        d = rows.abs().amax(1, keepdim=True) / 127
        scaled = rows * torch.where(d > 0, 1 / d, 0)
        codes = (scaled.abs() + 0.5).floor() * scaled.sign()
        return codes * d.half().float()
    half = 2 ** (bits - 1)
    largest = rows.gather(1, rows.abs().argmax(1, keepdim=True))
    d = largest / -half
    codes = (rows * torch.where(d != 0, 1 / d, 0) + (half + 0.5)).trunc().clamp(0, 2 * half - 1)
    weights: Tensor = (codes - half) * d.half().float()
    return weights


class RoundedMatrix(NamedTuple):
    """The weights that a rounded matrix stands for, its bytes when it is packed, and its format."""

    weights: Tensor
    bytes: int
    format: str


def rounded(matrix: Tensor, format_name: str) -> RoundedMatrix:
    """Return a matrix [n, d] rounded to a .gguf format.

    Where rows do not fit, it is a smaller format or F16.
    """
    width = matrix.shape[1]
    if width % BLOCK:
        format_name = SMALLER_FORMAT.get(format_name, format_name)
    if width % SMALL_BLOCK:
        format_name = "F16"
    size = int(matrix.numel() * BITS[format_name] / 8)
    if format_name == "F16":
        return RoundedMatrix(matrix.half().float(), size, format_name)
    pieces = []
    for rows in matrix.reshape(-1, BLOCK if width % BLOCK == 0 else SMALL_BLOCK).split(
        BLOCKS_AT_ONCE
    ):
        pieces.append(_rounded_rows(rows, format_name))
    return RoundedMatrix(torch.cat(pieces).reshape(matrix.shape), size, format_name)


def _rounded_rows(rows: Tensor, format_name: str) -> Tensor:
    """Return rows of whole blocks, rounded."""
    if format_name == "Q4_K":
        return k_codes(rows, 4).weights
    if format_name == "Q2_K":
        return k_codes(rows, 2).weights
    blocks = rows.reshape(-1, SMALL_BLOCK)
    bits: Literal[8, 5, 4] = 8 if format_name == "Q8_0" else 5 if format_name == "Q5_0" else 4
    return round_symmetric(blocks, bits).reshape(rows.shape)


class RoundedOnce:
    """The rounded matrices of one part of a model, for several models that mix its roundings."""

    def __init__(self) -> None:
        self._part = ""
        self._rounded: dict[tuple[str, str], RoundedMatrix] = {}

    def of_part(self, part: str) -> "RoundedOnce":
        """Return this, without the matrices of any other part."""
        if part != self._part:
            self._part = part
            self._rounded = {}
        return self

    def rounded(self, matrix: Matrix, format_name: str) -> RoundedMatrix:
        """Return a matrix rounded to a format, which is computed at the first call."""
        key = (matrix.name, format_name)
        if key not in self._rounded:
            rows = matrix.rows.float().cpu().contiguous()
            self._rounded[key] = rounded(rows, format_name.upper())
        return self._rounded[key]


def round_block(
    block: nn.Module,
    rounding: RoundingName | Mapping[str, str],
    once: RoundedOnce | None = None,
) -> tuple[int, set[str]]:
    """Round the matrices of a block in place, those of experts, too.

    Args:
        rounding: one for all, or one for each matrix by name; others stay.
        once: what this part was rounded to for other models; by default every matrix is rounded.

    Returns:
        The bytes of the block's weights when they are packed, and the formats that were used.
    """
    once = once or RoundedOnce()
    size = sum(weight.nbytes for weight in block.parameters())
    formats: set[str] = set()
    for matrix in matrices(block):
        name = rounding if isinstance(rounding, str) else rounding.get(matrix.name)
        if name is None:
            continue
        stored = once.rounded(matrix, name)
        matrix.set_rows(stored.weights)
        size += stored.bytes - matrix.weight.nbytes
        formats.add(stored.format)
    return size, formats
