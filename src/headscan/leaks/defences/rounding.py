"""Few bits a coordinate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from jaxtyping import Float
from torch import Tensor

from headscan.leaks.defence import DEFENCES, Defence, Fitted
from headscan.leaks.rounding import NumberFormat
from headscan.model.lens import Lens
from headscan.run import Option

__all__ = ["Rounding"]


@DEFENCES.register("rounding")
@dataclass(frozen=True, kw_only=True)
class Rounding(Defence):
    """Every coordinate in so many bits, with a scale and an offset a token; before the noise, where there is any."""

    name: ClassVar[str] = "rounding"
    rounds: ClassVar[bool] = True
    bits: Annotated[int, Option("Bits of each coordinate.", low=1, high=8)] = 1

    def fit(self, states: Float[Tensor, "N d"], seed: int, lens: Lens) -> Fitted:
        """The integer format of so many bits."""
        return Fitted(NumberFormat(f"{self.bits} bits", self.bits), lambda y: y)
