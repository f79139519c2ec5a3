"""A coarse quantiser with subtractive dither."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from headscan.leaks.bounds import UNIFORM, Law
from headscan.leaks.defence import DEFENCES, Defence, Fitted
from headscan.model.lens import Lens

__all__ = ["Dithering"]


@DEFENCES.register("dithering")
@dataclass(frozen=True, kw_only=True)
class Dithering(Defence):
    """Rounded to steps of √12 times the noise after a dither that receiver and attacker know, and take away again.

    That is uniform noise over one step, independent of the state (Schuchman 1964), and is computed as such.
    """

    name: ClassVar[str] = "dithering"
    law: ClassVar[Law] = UNIFORM

    def fit(self, states: Float[Tensor, "N d"], seed: int, lens: Lens) -> Fitted:
        """Nothing but the noise."""
        return Fitted(lambda x: x.float(), lambda y: y)
