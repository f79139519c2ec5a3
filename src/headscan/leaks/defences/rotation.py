"""A secret rotation that became known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from headscan.leaks.defence import DEFENCES, Defence, Fitted
from headscan.model.lens import Lens

__all__ = ["Rotation"]


@DEFENCES.register("rotation")
@dataclass(frozen=True, kw_only=True)
class Rotation(Defence):
    """Coordinates are mixed by a random rotation that the attacker knows: distances stay, and with them every bit."""

    name: ClassVar[str] = "rotation"

    def fit(self, states: Float[Tensor, "N d"], seed: int, lens: Lens) -> Fitted:
        """The rotation of this seed."""
        width = states.shape[1]
        drawn = torch.randn(width, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        turned = torch.linalg.qr(drawn).Q.to(states)
        return Fitted(lambda x: x.float() @ turned, lambda y: y @ turned.T)
