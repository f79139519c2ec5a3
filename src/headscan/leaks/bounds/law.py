"""Noises that are not Gaussian: the same bounds from their own divergences, and the same truth.

Y = x_X + σ N, with N independent in every coordinate, of variance 1 and a law that is symmetric about 0. Kolchinsky and
Tracey's bounds hold for any components: with KL(i ‖ j) from above and the Bhattacharyya divergence (Chernoff's of order ½, the
best for two laws that are mirror images) from below, each a sum over coordinates of one function of |x_i − x_j|/σ:

    law       scale          KL, a coordinate apart by δ       Bhattacharyya
    Gaussian                 δ²/2                              δ²/8
    Laplace   b = 1/√2       δ/b + exp(−δ/b) − 1               δ/2b − ln(1 + δ/2b)
    uniform   [−√3, √3]      ∞ unless δ = 0                    −ln(1 − δ/2√3), ∞ from δ = 2√3 on

Beside the pairs the entropy of the prior bounds from above, and the largest entropy of a given covariance:
I ≤ Σ ½ log2(1 + λᵢ/σ²) + d (h(Gaussian) − h(N)), which pays for every coordinate and helps in few only. There is no curve for all
noises here: U(2σ) ≤ I(σ) is the Gaussian's.

A subtractive dither, Q(x + u) − u with u uniform over a step Δ of the quantiser, is x plus uniform noise of σ = Δ/√12,
independent of x (Schuchman 1964): to whoever knows u, as the receiver does, it is this channel exactly.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from headscan.leaks.bounds.code import Code
from headscan.leaks.bounds.tightest import LeakBounds, accuracy_ceiling, leak_bounds
from headscan.leaks.bounds.truth import Draws, draws_of
from headscan.run import BadInput
from headscan.statistics.information import gaussian_bits

__all__ = ["GAUSSIAN", "LAPLACE", "UNIFORM", "Law"]

NUMBERS = 1 << 22
"""Differences of coordinates that are held at once."""
ENTROPY = 0.5 * math.log2(2 * math.pi * math.e)
"""h of the Gaussian of variance 1, in bits."""


class Law(ABC):
    """Noise of variance 1, the same and independent in every coordinate.

    >>> code = Code(torch.tensor([[0.0], [2.0]]), torch.tensor([0.5, 0.5]))
    >>> [(law.name, *(round(bits, 2) for bits in (one.lower, one.upper)))
    ...  for law in (GAUSSIAN, LAPLACE, UNIFORM) for one in law.bounds(code, [1.0])]
    [('Gaussian', 0.37, 0.5), ('Laplace', 0.33, 0.6), ('uniform', 0.49, 0.75)]
    """

    name: ClassVar[str]
    entropy: ClassVar[float]
    """h of one coordinate, in bits."""
    everywhere: ClassVar[bool] = True
    """Whether its density is nowhere 0, so that nothing that is seen excludes a candidate."""

    @abstractmethod
    def draw(self, shape: Sequence[int], generator: torch.Generator) -> Float[Tensor, "*shape"]:
        """Noise, float64."""

    @abstractmethod
    def surprise(self, away: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch"]:
        """−ln of the density at `away`, summed over coordinates, up to a constant."""

    @abstractmethod
    def divergence(self, away: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch"]:
        """KL of the law from itself moved by `away`, in nats."""

    @abstractmethod
    def bhattacharyya(self, away: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch"]:
        """−ln ∫ √(p q) of the law and itself moved by `away`."""

    def bounds(self, code: Code, sigmas: Sequence[float]) -> list[LeakBounds]:
        """As `leak_bounds`, for this law. Cost: M² d functions a noise and divergence."""
        if any(not sigma > 0 for sigma in sigmas):
            raise BadInput("Bits are bounded for noise above 0.")
        found, extra = list[LeakBounds](), code.points.shape[1] * (ENTROPY - self.entropy)
        for sigma in sigmas:
            low, high = self._pairs(code, sigma)
            above = {
                "pairs": code.kept * high + code.tail,
                "Gaussian": code.kept * (gaussian_bits(code.variances, sigma) + extra) + code.tail,
                "entropy": code.entropy,
            }
            upper_by = min(above, key=above.__getitem__)
            upper = max(above[upper_by], 0.0)
            found.append(
                LeakBounds(
                    noise=sigma, lower=min(max(code.kept * low, 0.0), upper), upper=upper, lower_by="pairs",
                    upper_by=upper_by, accuracy_upper=accuracy_ceiling(code, upper),
                )
            )  # fmt: skip
        return found

    def _pairs(self, code: Code, sigma: float) -> tuple[float, float]:
        """Both pairwise bounds of those that were run, in bits."""
        x, logs, sums = code.centred, code.prior.log(), [0.0, 0.0]
        for some in torch.arange(len(x)).split(max(1, NUMBERS // x.numel())):
            away = ((x[some, None] - x) / sigma).abs()
            for k, far in enumerate((self.bhattacharyya(away), self.divergence(away))):
                sums[k] -= float(code.prior[some] @ torch.logsumexp(logs - far, 1)) / math.log(2)
        return sums[0], sums[1]

    def draws(self, code: Code, sigmas: Sequence[float], *, draws: int = 64, seed: int = 0) -> list[Draws]:
        """As `draws_of`, for this law. Cost: 2 · draws · M · d functions a noise."""
        generator = torch.Generator().manual_seed(seed)
        prior, x = code.prior.cpu(), code.centred.cpu()
        chosen = torch.multinomial(prior, draws, replacement=True, generator=generator)
        found = list[Draws]()
        for sigma in sigmas:
            bits, right = list[Tensor](), list[Tensor]()
            for some in chosen.split(max(1, NUMBERS // x.numel())):
                noise = self.draw((len(some), x.shape[1]), generator)
                both = [self._posterior(prior.log(), x, some, sign * noise, sigma) for sign in (1, -1)]
                bits.append(-torch.stack([torch.logsumexp(one, 1) for one in both]).mean(0) / math.log(2))
                right.append(torch.stack([(one.argmax(1) == some).double() for one in both]).mean(0))
            found.append(Draws(bits=torch.cat(bits), right=torch.cat(right)))
        return found

    def _posterior(self, logs: Tensor, x: Tensor, some: Tensor, noise: Tensor, sigma: float) -> Tensor:
        """ln p_j N(y; x_j) / N(y; x_i) for every candidate j of each draw i."""
        away = noise[:, None] + (x[some, None] - x) / sigma
        return logs - self.surprise(away) + self.surprise(noise)[:, None]


class _GaussianLaw(Law):
    name, entropy = "Gaussian", ENTROPY

    def draw(self, shape: Sequence[int], generator: torch.Generator) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    def surprise(self, away: Tensor) -> Tensor:
        return away.square().sum(-1) / 2

    def divergence(self, away: Tensor) -> Tensor:
        return away.square().sum(-1) / 2

    def bhattacharyya(self, away: Tensor) -> Tensor:
        return away.square().sum(-1) / 8

    def bounds(self, code: Code, sigmas: Sequence[float]) -> list[LeakBounds]:
        return leak_bounds(code, sigmas)

    def draws(self, code: Code, sigmas: Sequence[float], *, draws: int = 64, seed: int = 0) -> list[Draws]:
        return draws_of(code, sigmas, draws=draws, seed=seed)


class _LaplaceLaw(Law):
    name, entropy = "Laplace", math.log2(2 * math.e / math.sqrt(2))

    def draw(self, shape: Sequence[int], generator: torch.Generator) -> Tensor:
        flat = torch.rand(*shape, generator=generator, dtype=torch.float64) - 0.5
        return -flat.sign() * torch.log1p(-2 * flat.abs()) / math.sqrt(2)

    def surprise(self, away: Tensor) -> Tensor:
        return away.abs().sum(-1) * math.sqrt(2)

    def divergence(self, away: Tensor) -> Tensor:
        scaled = away.abs() * math.sqrt(2)
        return (scaled + torch.expm1(-scaled)).sum(-1)

    def bhattacharyya(self, away: Tensor) -> Tensor:
        half = away.abs() / math.sqrt(2)
        return (half - torch.log1p(half)).sum(-1)


class _UniformLaw(Law):
    name, entropy, everywhere = "uniform", math.log2(2 * math.sqrt(3)), False

    def draw(self, shape: Sequence[int], generator: torch.Generator) -> Tensor:
        return (torch.rand(*shape, generator=generator, dtype=torch.float64) - 0.5) * 2 * math.sqrt(3)

    def surprise(self, away: Tensor) -> Tensor:
        # Slack of rounding: a draw at the border is inside its own box.
        return torch.where(away.abs().amax(-1) > math.sqrt(3) * (1 + 1e-12), math.inf, 0.0).double()

    def divergence(self, away: Tensor) -> Tensor:
        return torch.where(away.abs().amax(-1) > 0, math.inf, 0.0).double()

    def bhattacharyya(self, away: Tensor) -> Tensor:
        return -torch.log((1 - away.abs() / (2 * math.sqrt(3))).clamp_min(0)).sum(-1)


GAUSSIAN: Law = _GaussianLaw()
LAPLACE: Law = _LaplaceLaw()
UNIFORM: Law = _UniformLaw()
