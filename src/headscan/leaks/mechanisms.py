"""The mechanisms by which a channel may be protected: maps that the attacker knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from headscan.leaks.mechanism import MECHANISMS, Fitted, Mechanism, NumberFormat, same
from headscan.model.lens import Lens
from headscan.run import BadInput, Option


@MECHANISMS.register("permutation")
@dataclass(frozen=True, kw_only=True)
class SecretOrder(Mechanism):
    """Coordinates of every token in a secret order of its own: what remains are the numbers, here sorted, then noise.

    Without noise the sorted numbers are all that such a release tells. With noise they tell no less: whoever has them can shuffle
    them, so the upper bound holds for the shuffled release, too, and the lower one for the sorted. The receiver knows the order.
    A search by sorted numbers is the attack of arXiv:2505.18332.
    """

    name: ClassVar[str] = "permutation"

    def fit(self, states: Float[Tensor, "N d"], seed: int, lens: Lens) -> Fitted:
        return Fitted(lambda x: x.float().sort(-1).values, same, kept=lambda x: x.float())


@MECHANISMS.register("projection")
@dataclass(frozen=True, kw_only=True)
class Projection(Mechanism):
    """Released are the coordinates along the first principal directions of the site's states, as many as `dimensions`."""

    name: ClassVar[str] = "projection"
    dimensions: Annotated[int, Option("Directions that are released.", low=1)] = 8

    def fit(self, states: Float[Tensor, "N d"], seed: int, lens: Lens) -> Fitted:
        if self.dimensions > states.shape[1]:
            raise BadInput(f"dimensions={self.dimensions} is more than the {states.shape[1]} of the site.")
        mean = states.mean(0)
        centred = (states - mean).double()
        directions = torch.linalg.eigh(centred.T @ centred).eigenvectors.flip(1)[:, : self.dimensions].to(states.dtype)
        return Fitted(lambda x: (x.float() - mean) @ directions, lambda y: y @ directions.T + mean)


@MECHANISMS.register("rotation")
@dataclass(frozen=True, kw_only=True)
class Rotation(Mechanism):
    """Coordinates are mixed by a random rotation that the attacker knows: distances stay, and with them every bit."""

    name: ClassVar[str] = "rotation"

    def fit(self, states: Float[Tensor, "N d"], seed: int, lens: Lens) -> Fitted:
        width = states.shape[1]
        drawn = torch.randn(width, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        turned = torch.linalg.qr(drawn).Q.to(states)
        return Fitted(lambda x: x.float() @ turned, lambda y: y @ turned.T)


@MECHANISMS.register("rounding")
@dataclass(frozen=True, kw_only=True)
class Rounding(Mechanism):
    """Every coordinate in so many bits, with a scale and an offset a token; before the noise, where there is any."""

    name: ClassVar[str] = "rounding"
    rounds: ClassVar[bool] = True
    bits: Annotated[int, Option("Bits of each coordinate.", low=1, high=8)] = 1

    def fit(self, states: Float[Tensor, "N d"], seed: int, lens: Lens) -> Fitted:
        return Fitted(NumberFormat(f"{self.bits} bits", self.bits), same)


@MECHANISMS.register("per-coordinate")
@dataclass(frozen=True, kw_only=True)
class Scaling(Mechanism):
    """Noise in proportion to each coordinate's own spread: few large coordinates do not take it all on themselves."""

    name: ClassVar[str] = "per-coordinate"

    def fit(self, states: Float[Tensor, "N d"], seed: int, lens: Lens) -> Fitted:
        spread = states.std(0, unbiased=False)
        spread = spread.where(spread > 0, spread.new_ones(()))  # a constant coordinate is released as it is
        return Fitted(lambda x: x.float() / spread, lambda y: y * spread)


@MECHANISMS.register("sparsification")
@dataclass(frozen=True, kw_only=True)
class Sparsification(Mechanism):
    """Of each token the coordinates of largest size, as a split model sends them; the others are 0."""

    name: ClassVar[str] = "sparsification"
    largest: Annotated[float, Option("Share of a token's coordinates that is sent.", above=0, high=1)] = 0.25

    def fit(self, states: Float[Tensor, "N d"], seed: int, lens: Lens) -> Fitted:
        count = max(1, round(self.largest * states.shape[1]))

        def seen(x: Tensor) -> Tensor:
            kept = x.float().abs().topk(count, -1).indices
            return torch.zeros_like(x, dtype=torch.float32).scatter(-1, kept, x.float().gather(-1, kept))

        return Fitted(seen, same)
