"""Vectors of whole numbers, as sentence-transformers and vector databases store them."""

from collections.abc import Mapping
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from headscan.run import BadInput
from headscan.states.rows import Array, Rows, decoded_array

Packing = Literal["binary", "ubinary"]
PACKINGS: tuple[Packing, ...] = get_args(Packing)
"""The precisions of sentence-transformers that store eight numbers in a byte; `PATH#SITE:ubinary`
names one.
"""

SCALES = ("scale", "zero_point", "ranges")
"""The arrays beside 8-bit vectors that say which numbers they stand for.

A whole number q stands for scale × (q − zero_point). `ranges` [2, width] are the least and the
largest number of each dimension, as `quantize_embeddings` of sentence-transformers takes them.
Without either, whole numbers are taken as they stand.
"""

LEVELS = 255
"""The steps between the least and the largest number of 8 bits."""

SIGNED_SHIFT = 128
"""What signed bytes lie below unsigned ones."""


class ScaledRows:
    """The numbers scale × q + shift that rows of whole numbers q stand for."""

    def __init__(
        self, rows: Rows, scale: Float[Tensor, " width"], shift: Float[Tensor, " width"]
    ) -> None:
        self.rows = rows
        self.scale = scale
        self.shift = shift
        self.count = rows.count
        self.width = rows.width
        self.dtype = torch.float32

    def read(self, first: int, last: int) -> Tensor:
        return self.rows.read(first, last).float() * self.scale + self.shift


class BitRows:
    """Rows of packed bits as numbers: 1 for a bit that is set, which stands for a positive number,
    −1 for others.

    The average cosine of such vectors is 1 − 2h/d for h bits of d that differ.

    >>> from headscan.states.rows import TensorRows
    >>> BitRows(TensorRows(torch.tensor([[0b10100000]], dtype=torch.uint8)), "ubinary").read(0, 1)
    tensor([[ 1., -1.,  1., -1., -1., -1., -1., -1.]])
    """

    def __init__(self, rows: Rows, packing: Packing) -> None:
        self.rows = rows
        self.shift = SIGNED_SHIFT if packing == "binary" else 0
        self.count = rows.count
        self.width = 8 * rows.width
        self.dtype = torch.float32

    def read(self, first: int, last: int) -> Tensor:
        numbers = self.rows.read(first, last).int() + self.shift
        places = torch.arange(7, -1, -1)
        bits = (numbers[:, :, None] >> places) & 1
        return (2 * bits - 1).flatten(1).float()


def unpacked(name: str, site: str, rows: Rows, packing: Packing) -> BitRows:
    """Return rows of bytes as the signs that their bits stand for.

    Raises BadInput where the rows are not of the bytes that sentence-transformers writes.
    """
    needed = torch.int8 if packing == "binary" else torch.uint8
    if rows.dtype is not needed:
        stored = str(rows.dtype).removeprefix("torch.")
        raise BadInput(
            f"{name}#{site}:{packing} is packed in {str(needed).removeprefix('torch.')}, and "
            f"{site} holds {stored}."
        )
    return BitRows(rows, packing)


def scaled(name: str, arrays: Mapping[str, Array], rows: Rows) -> Rows:
    """Return rows of 8-bit whole numbers as the numbers that they stand for.

    `arrays` may hold those of `SCALES`; without them the rows are returned as they are. Raises
    BadInput where their shapes do not fit.
    """
    width = rows.width
    if "ranges" in arrays:
        lowest, highest = _row_of(name, arrays["ranges"], "ranges", 2 * width).reshape(2, width)
        scale = (highest - lowest) / LEVELS
        shift = lowest + scale * (SIGNED_SHIFT if rows.dtype is torch.int8 else 0)
        return ScaledRows(rows, scale, shift)
    if "scale" in arrays:
        scale = _row_of(name, arrays["scale"], "scale", width)
        zero_point = torch.zeros(())
        if "zero_point" in arrays:
            zero_point = _row_of(name, arrays["zero_point"], "zero_point", width)
        return ScaledRows(rows, scale, -scale * zero_point)
    return rows


def _row_of(name: str, array: Array, title: str, count: int) -> Tensor:
    """Return the numbers of an array, one of them or `count`."""
    size, rows = decoded_array(array)
    if size not in (1, count):
        raise BadInput(
            f"{name} holds {size} numbers at '{title}', and its vectors need 1 or {count}."
        )
    return rows.read(0, 1)[0].float()
