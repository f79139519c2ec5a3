"""Number formats in which what leaks may be held: floating point of few bits, and integers with a scale a group."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headscan.run import BadInput

__all__ = ["FORMATS", "NumberFormat", "read_format"]

FLOATS = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16, "fp8": torch.float8_e4m3fn}
FORMATS = (*FLOATS, "int8", "int4", "int2")
"""All formats by name; an integer format may name its group: int4/32."""


@dataclass(frozen=True)
class NumberFormat:
    """How the numbers of one vector are held.

    Attributes:
        name: "fp16", "int4", "int4/32".
        bits: of each number; group: numbers that share a scale and an offset, None for the whole vector (a token).

    Integers are asymmetric: the group's least number is the offset and its range over 2^bits − 1 the step, both held in half
    precision. "fp8" is e4m3 without a scale, clipped to ±448.

    >>> read_format("int2/4")(torch.tensor([0.0, 1.0, 2.0, 3.0, 0.0, 10.0, 20.0, 31.0]))
    tensor([ 0.0000,  1.0000,  2.0000,  3.0000,  0.0000, 10.3359, 20.6719, 31.0078])
    >>> read_format("fp8")(torch.tensor([1.06, 1000.0]))
    tensor([  1., 448.])
    """

    name: str
    bits: int
    group: int | None = None

    def __call__(self, values: Float[Tensor, "*batch w"]) -> Float[Tensor, "*batch w"]:
        """The numbers as they are read back, float32."""
        dtype = FLOATS.get(self.name)
        if dtype is not None:
            limit = torch.finfo(dtype).max
            return values.float().clamp(-limit, limit).to(dtype).float()
        width = values.shape[-1]
        group = width if self.group is None else min(self.group, width)
        if width % group:
            raise BadInput(f"{width} numbers do not fall into groups of {group}.")
        parts = values.float().unflatten(-1, (-1, group))
        low = parts.amin(-1, keepdim=True).half().float()
        step = ((parts.amax(-1, keepdim=True) - low) / (2**self.bits - 1)).half().float().clamp_min(2.0**-24)
        codes = ((parts - low) / step).round().clamp(0, 2**self.bits - 1)
        found: Tensor = (codes * step + low).flatten(-2)
        return found

    def each(self, widths: tuple[int, ...]) -> Callable[[Tensor], Tensor]:
        """The same for vectors put together from parts of these widths, each with scales of its own."""
        return lambda values: torch.cat([self(part) for part in values.split(list(widths), -1)], -1)


def read_format(text: str) -> NumberFormat:
    """A format from its name.

    Raises:
        BadInput: there is no such format.

    >>> read_format("int4/32")
    NumberFormat(name='int4/32', bits=4, group=32)
    >>> read_format("int3")
    Traceback (most recent call last):
    headscan.BadInput: There is no number format 'int3'; there are: fp32, fp16, bf16, fp8, int8, int4, int2, and int4/32 for ...
    """
    found = re.fullmatch(r"(int(?:8|4|2))(?:/(\d+))?", text)
    if text in FLOATS:
        return NumberFormat(text, FLOATS[text].itemsize * 8)
    if found is None or found[2] == "0":
        raise BadInput(
            f"There is no number format '{text}'; there are: {', '.join(FORMATS)}, and int4/32 for groups of 32 numbers."
        )
    return NumberFormat(text, int(found[1][3:]), int(found[2]) if found[2] else None)
