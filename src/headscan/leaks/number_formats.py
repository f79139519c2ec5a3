"""Number formats of a release: floating point of few bits, and integers with a scale a group."""

import re
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headscan.run import BadInput

FLOATS = {
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp8": torch.float8_e4m3fn,
}
LEAST_STEP = 2.0**-24  # of integers: the least positive number of half precision
INTEGER = re.compile(r"(int(?:8|4|2))(?:/(\d+))?")


@dataclass(frozen=True)
class NumberFormat:
    """The format of the numbers of one vector.

    Integers are asymmetric: the group's least number is the offset and its range over 2^bits − 1
    the step, both stored in half precision. "fp8" is e4m3 without a scale, clipped to ±448.

    Attributes:
        name: such as "fp16", "int4", "int4/32".
        bits: of each number.
        group: numbers that share a scale and an offset; None for the whole vector (a token).

    >>> read_format("int2/4")(torch.tensor([0.0, 1.0, 2.0, 3.0, 0.0, 10.0, 20.0, 31.0]))
    tensor([ 0.0000,  1.0000,  2.0000,  3.0000,  0.0000, 10.3359, 20.6719, 31.0078])
    >>> read_format("fp8")(torch.tensor([1.06, 1000.0]))
    tensor([  1., 448.])
    """

    name: str
    bits: int
    group: int | None = None

    def __call__(self, values: Float[Tensor, "*batch w"]) -> Float[Tensor, "*batch w"]:
        """Return the values rounded to the format."""
        dtype = FLOATS.get(self.name)
        if dtype is not None:
            limit = torch.finfo(dtype).max
            return values.float().clamp(-limit, limit).to(dtype).float()
        return self._rounded_to_integers(values.float())

    def _rounded_to_integers(self, values: Tensor) -> Tensor:
        width = values.shape[-1]
        group = min(self.group or width, width)
        if width % group:
            raise BadInput(f"{width} numbers do not fall into groups of {group}.")
        groups = values.unflatten(-1, (-1, group))
        largest_code = 2**self.bits - 1
        offset = groups.amin(-1, keepdim=True).half().float()
        step = (groups.amax(-1, keepdim=True) - offset) / largest_code
        step = step.half().float().clamp_min(LEAST_STEP)
        codes = ((groups - offset) / step).round().clamp(0, largest_code)
        return torch.as_tensor((codes * step + offset).flatten(-2))

    def each(self, widths: tuple[int, ...]) -> Callable[[Tensor], Tensor]:
        """Return the format for vectors put together from parts of these widths.

        Each part has scales of its own.
        """

        def rounded(values: Tensor) -> Tensor:
            parts = values.split(list(widths), -1)
            return torch.cat([self(part) for part in parts], -1)

        return rounded


def read_format(text: str) -> NumberFormat:
    """Return a format by its name.

    >>> read_format("int4/32")
    NumberFormat(name='int4/32', bits=4, group=32)
    >>> read_format("int3")
    Traceback (most recent call last):
    headscan.BadInput: There is no number format 'int3'; there are: fp32, fp16, bf16, fp8, int8, int4, int2, and int4/32 for ...
    """  # noqa: E501 the message is one line
    if text in FLOATS:
        return NumberFormat(text, FLOATS[text].itemsize * 8)
    integer = INTEGER.fullmatch(text)
    if integer is None or integer[2] == "0":
        raise BadInput(
            f"There is no number format '{text}'; there are: {', '.join(FLOATS)}, int8, int4, "
            "int2, and int4/32 for groups of 32 numbers."
        )
    bits = int(integer[1].removeprefix("int"))
    return NumberFormat(text, bits, int(integer[2]) if integer[2] else None)
