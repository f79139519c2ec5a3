"""Only the largest coordinates of each token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from headscan.leaks.defence import DEFENCES, Defence, Fitted
from headscan.model.lens import Lens
from headscan.run import Option

__all__ = ["Sparsification"]


@DEFENCES.register("sparsification")
@dataclass(frozen=True, kw_only=True)
class Sparsification(Defence):
    """Of each token the coordinates of largest size, as a split model sends them; the others are 0."""

    name: ClassVar[str] = "sparsification"
    largest: Annotated[float, Option("Share of a token's coordinates that is sent.", above=0, high=1)] = 0.25

    def fit(self, states: Float[Tensor, "N d"], seed: int, lens: Lens) -> Fitted:
        """As many of each token's coordinates."""
        count = max(1, round(self.largest * states.shape[1]))

        def seen(x: Tensor) -> Tensor:
            kept = x.float().abs().topk(count, -1).indices
            return torch.zeros_like(x, dtype=torch.float32).scatter(-1, kept, x.float().gather(-1, kept))

        return Fitted(seen, lambda y: y)
