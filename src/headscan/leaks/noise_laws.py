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
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from headscan.leaks.bounds import Code, LeakBounds, leak_bounds, pairwise_curve, tightest
from headscan.run import BadInput
from headscan.statistics.information import gaussian_bits

# ---- What a noisy release really tells, by Monte Carlo with the exact posterior over all candidates, and the best attack.

CHUNK = 1 << 23


@dataclass(frozen=True, kw_only=True, eq=False)
class Draws:
    """Monte Carlo draws at one noise: each a candidate drawn from the prior, with noise and with its mirror image."""

    bits: Float[Tensor, " n"]  # estimates of I, each without bias; independent of one another
    right: Float[Tensor, " n"]  # share of the two that the likeliest candidate names rightly, 0, ½ or 1

    @property
    def mean(self) -> float:
        return float(self.bits.mean())

    @property
    def error(self) -> float:
        return float(self.bits.std() / len(self.bits) ** 0.5)

    @property
    def accuracy(self) -> float:
        return float(self.right.mean())


@torch.no_grad()
def draws_of(
    code: Code, sigmas: Sequence[float], *, draws: int = 64, seed: int = 0, every: bool | None = None
) -> list[Draws]:
    """Draws for each noise, of the candidates that were run and given that X is one of them.

    With y = x_i + σn the posterior of every candidate is known, and −log2 Σ_j p_j exp(−(‖x_i − x_j‖² + 2σ n·(x_i − x_j)) / 2σ²)
    has the mean I. Variance is taken away by mirrored noise (n and −n), and by subtracting half the sum of the row's terms in
    U(σ) and U(2σ), whose means are known where all rows are (`every`); the coefficients are fixed, since fitted ones would
    bias small samples.

    All noises see the same draws. `every`: whether the rows' terms are computed for all candidates; by default up to 4,096.

    Cost: draws · M · d multiplications, and M² d for `every`.

    >>> code = Code(torch.tensor([[0.0], [2.0]]), torch.tensor([0.5, 0.5]))
    >>> [round(float(one.bits.mean()), 2) for one in draws_of(code, [0.1, 2.0], draws=4000)]  # 0.1607 by integration
    [1.0, 0.16]
    """
    generator = torch.Generator().manual_seed(seed)
    every = len(code.points) <= 4096 if every is None else every
    prior, x = code.prior.cpu(), code.centred.cpu()
    chosen = torch.multinomial(prior, draws, replacement=True, generator=generator)
    logs = prior.log()
    scales = sorted({scale for sigma in sigmas for scale in (sigma, 2 * sigma)})
    rows = pairwise_curve(code, scales).cpu() if every else None
    bits: list[list[Tensor]] = [[] for _ in sigmas]
    right: list[list[Tensor]] = [[] for _ in sigmas]
    for some in chosen.split(max(1, CHUNK // len(x))):
        noise = torch.randn(len(some), x.shape[1], generator=generator, dtype=torch.float64)
        away, here = code.away(some).cpu(), torch.arange(len(some))
        along = (noise * x[some]).sum(1, keepdim=True) - noise @ x.T
        along[here, some] = 0
        for k, sigma in enumerate(sigmas):
            posterior = [logs - (away + sign * 2 * sigma * along) / (2 * sigma**2) for sign in (1, -1)]
            both = sum(-torch.logsumexp(one, 1) for one in posterior) / (2 * math.log(2))
            if rows is not None:
                for scale in (sigma, 2 * sigma):
                    row = rows[scales.index(scale)]
                    both = both - 0.5 * (row[some] - prior @ row)
            bits[k].append(torch.as_tensor(both))
            right[k].append(torch.stack([(one.argmax(1) == some).double() for one in posterior]).mean(0))
    return [Draws(bits=torch.cat(b), right=torch.cat(r)) for b, r in zip(bits, right, strict=True)]


# Differences of coordinates that are held at once; h of the Gaussian of variance 1, in bits.
NUMBERS = 1 << 22
ENTROPY = 0.5 * math.log2(2 * math.pi * math.e)


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
        extra = code.points.shape[1] * (ENTROPY - self.entropy)
        bounds = []
        for sigma in sigmas:
            low, high = self._pairs(code, sigma)
            above = {
                "pairs": code.kept * high + code.tail,
                "Gaussian": code.kept * (gaussian_bits(code.variances, sigma) + extra) + code.tail,
                "entropy": code.entropy,
            }
            bounds.append(tightest(code, sigma, {"pairs": code.kept * low}, above))
        return bounds

    def _pairs(self, code: Code, sigma: float) -> tuple[float, float]:
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
