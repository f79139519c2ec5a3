"""Noise for each coordinate as large as its own spread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from headscan.leaks.defence import DEFENCES, Defence, Fitted
from headscan.model.lens import Lens

__all__ = ["Scaling"]


@DEFENCES.register("per-coordinate")
@dataclass(frozen=True, kw_only=True)
class Scaling(Defence):
    """Noise in proportion to each coordinate's own spread: few large coordinates do not take it all on themselves."""

    name: ClassVar[str] = "per-coordinate"

    def fit(self, states: Float[Tensor, "N d"], seed: int, lens: Lens) -> Fitted:
        """The spread of each coordinate; a constant one is released as it is."""
        spread = states.std(0, unbiased=False)
        spread = spread.where(spread > 0, spread.new_ones(()))
        return Fitted(lambda x: x.float() / spread, lambda y: y * spread)
