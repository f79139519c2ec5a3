"""Few coordinates are released."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from headscan.leaks.defence import DEFENCES, Defence, Fitted
from headscan.model.lens import Lens
from headscan.run import Option

__all__ = ["Dropping"]


@DEFENCES.register("dropping")
@dataclass(frozen=True, kw_only=True)
class Dropping(Defence):
    """Released is a share of the coordinates, drawn once and known; the others are replaced by their mean."""

    name: ClassVar[str] = "dropping"
    share: Annotated[float, Option("Share of the coordinates that is released.", above=0, high=1)] = 0.25

    def fit(self, states: Float[Tensor, "N d"], seed: int, lens: Lens) -> Fitted:
        """The coordinates, and the mean of these states for the others."""
        width = states.shape[1]
        order = torch.randperm(width, generator=torch.Generator().manual_seed(seed)).to(states.device)
        kept, mean = order[: max(1, round(self.share * width))].sort().values, states.mean(0)

        def back(seen: Tensor) -> Tensor:
            whole = mean.expand(*seen.shape[:-1], width).clone()
            whole[..., kept] = seen
            return whole

        return Fitted(lambda x: x.float()[..., kept], back)
