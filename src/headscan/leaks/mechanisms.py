"""The mechanisms by which a channel may be protected: maps that the attacker knows, laws of noise, what is withheld."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from headscan.leaks.mechanism import MECHANISMS, Fitted, Mechanism, NumberFormat, same
from headscan.leaks.noise_laws import LAPLACE, UNIFORM, Law
from headscan.model.lens import Lens
from headscan.run import BadInput, Option

FLOOR = 1e-3


class NoiseOnly(Mechanism):
    """A mechanism that is its law of noise and nothing else."""

    def fit(self, states: Float[Tensor, "N d"], seed: int, lens: Lens) -> Fitted:
        return Fitted(lambda x: x.float(), same)


@MECHANISMS.register("dithering")
@dataclass(frozen=True, kw_only=True)
class Dithering(NoiseOnly):
    """Rounded to steps of √12 times the noise after a dither that receiver and attacker know, and take away again.

    That is uniform noise over one step, independent of the state (Schuchman 1964), and is computed as such.
    """

    name: ClassVar[str] = "dithering"
    law: ClassVar[Law] = UNIFORM


@MECHANISMS.register("dropping")
@dataclass(frozen=True, kw_only=True)
class Dropping(Mechanism):
    """Released is a share of the coordinates, drawn once and known; the others are replaced by their mean."""

    name: ClassVar[str] = "dropping"
    share: Annotated[float, Option("Share of the coordinates that is released.", above=0, high=1)] = 0.25

    def fit(self, states: Float[Tensor, "N d"], seed: int, lens: Lens) -> Fitted:
        width = states.shape[1]
        order = torch.randperm(width, generator=torch.Generator().manual_seed(seed)).to(states.device)
        kept, mean = order[: max(1, round(self.share * width))].sort().values, states.mean(0)

        def back(seen: Tensor) -> Tensor:
            whole = mean.expand(*seen.shape[:-1], width).clone()
            whole[..., kept] = seen
            return whole

        return Fitted(lambda x: x.float()[..., kept], back)


@MECHANISMS.register("head-null")
@dataclass(frozen=True, kw_only=True)
class HeadNull(Mechanism):
    """Noise along the directions that the head hardly reads, in each in inverse proportion to how strongly it does.

    A head of more tokens than features has no null space: what comes near one are the directions in which its centred weight
    has its smallest singular values. Noise is larger there by as much as the singular value is smaller (at most √1000 times), so
    that every direction's noise moves the logits alike. The gain of a norm before the head is left out of account.
    """

    name: ClassVar[str] = "head-null"

    def fit(self, states: Float[Tensor, "N d"], seed: int, lens: Lens) -> Fitted:
        head = lens.traits.linear_head
        if head is None or head.weight.shape[1] != states.shape[1]:
            raise BadInput(
                f"The defence head-null needs states of the width that the linear head of '{lens.name}' reads: choose blocks "
                "with --sites."
            )
        weight = head.weight.detach().double()
        centred = weight - weight.mean(0)
        values, directions = torch.linalg.eigh(centred.T @ centred)
        scale = (values / values.max() + FLOOR).rsqrt()
        scale, turned = (scale / scale.square().mean().sqrt()).to(states), directions.to(states)
        return Fitted(lambda x: x.float() @ turned / scale, lambda y: (y * scale) @ turned.T)


@MECHANISMS.register("laplace")
@dataclass(frozen=True, kw_only=True)
class Laplace(NoiseOnly):
    """Laplace noise in every coordinate, of the same power as the Gaussian: that of pure differential privacy."""

    name: ClassVar[str] = "laplace"
    law: ClassVar[Law] = LAPLACE


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
    """Released are the coordinates along the first principal directions of the site's states, as many as `--dimensions`."""

    name: ClassVar[str] = "projection"
    dimensions: Annotated[int, Option("Directions that are released.", low=1)] = 8

    def fit(self, states: Float[Tensor, "N d"], seed: int, lens: Lens) -> Fitted:
        if self.dimensions > states.shape[1]:
            raise BadInput(f"--dimensions {self.dimensions} is more than the {states.shape[1]} of the site.")
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


@MECHANISMS.register("dropping-tokens")
@dataclass(frozen=True, kw_only=True)
class DroppingTokens(Mechanism):
    """Of every so many tokens the state of one is withheld; the attacker knows of which, and the model goes on with the mean.

    A token whose release is withheld has no bits of its own: what later states tell of it is in the bits of whole texts.
    """

    name: ClassVar[str] = "dropping-tokens"
    every: Annotated[int, Option("One of so many tokens' states is withheld.", low=1)] = 2

    def fit(self, states: Float[Tensor, "N d"], seed: int, lens: Lens) -> Fitted:
        return Fitted(lambda x: x.float(), same, absent=states.mean(0))

    def withheld(self, place: int) -> bool:
        return place > 0 and place % self.every == self.every - 1  # never the first position, which is known
