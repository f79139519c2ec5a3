"""Few directions are released."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from headscan.leaks.defence import DEFENCES, Defence, Fitted
from headscan.model.lens import Lens
from headscan.run import BadInput, Option

__all__ = ["Projection"]


@DEFENCES.register("projection")
@dataclass(frozen=True, kw_only=True)
class Projection(Defence):
    """Released are the coordinates along the first principal directions of the site's states, as many as `--dimensions`."""

    name: ClassVar[str] = "projection"
    dimensions: Annotated[int, Option("Directions that are released.", low=1)] = 8

    def fit(self, states: Float[Tensor, "N d"], seed: int, lens: Lens) -> Fitted:
        """Mean and directions of these states."""
        if self.dimensions > states.shape[1]:
            raise BadInput(f"--dimensions {self.dimensions} is more than the {states.shape[1]} of the site.")
        mean = states.mean(0)
        centred = (states - mean).double()
        directions = torch.linalg.eigh(centred.T @ centred).eigenvectors.flip(1)[:, : self.dimensions].to(states.dtype)
        return Fitted(lambda x: (x.float() - mean) @ directions, lambda y: y @ directions.T + mean)
