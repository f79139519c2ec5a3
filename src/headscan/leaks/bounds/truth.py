"""What a noisy release really tells, by Monte Carlo with the exact posterior over all candidates, and the best attack."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headscan.leaks.bounds.code import Code
from headscan.leaks.bounds.mixture import pairwise_curve

__all__ = ["Draws", "MonteCarlo", "draws_of", "monte_carlo"]

CHUNK = 1 << 23


@dataclass(frozen=True, kw_only=True, eq=False)
class Draws:
    """Monte Carlo draws at one noise: each a candidate drawn from the prior, with noise and with its mirror image.

    Attributes:
        bits: [n] estimates of I, each without bias; independent of one another.
        right: [n] share of the two that the likeliest candidate names rightly, 0, ½ or 1.
    """

    bits: Float[Tensor, " n"]
    right: Float[Tensor, " n"]


@dataclass(frozen=True, kw_only=True)
class MonteCarlo:
    """I(X; Y) in bits with its standard error, and the accuracy of the best attack, of `draws` draws."""

    bits: float
    error: float
    accuracy: float
    draws: int


@torch.no_grad()
def draws_of(
    code: Code, sigmas: Sequence[float], *, draws: int = 64, seed: int = 0, every: bool | None = None
) -> list[Draws]:
    """Draws for each noise, of the candidates that were run and given that X is one of them.

    With y = x_i + σn the posterior of every candidate is known, and −log2 Σ_j p_j exp(−(‖x_i − x_j‖² + 2σ n·(x_i − x_j)) / 2σ²)
    has the mean I. Variance is taken away by mirrored noise (n and −n), and by subtracting half the sum of the row's terms in
    U(σ) and U(2σ), whose means are known where all rows are (`every`); the coefficients are fixed, since fitted ones would
    bias small samples.

    Args:
        code: the candidates.
        sigmas: noises; all see the same draws.
        draws: pairs of mirrored draws.
        seed: of candidates and noise.
        every: whether the rows' terms are computed for all candidates; by default up to 4,096 of them.

    Cost: draws · M · d multiplications, and M² d for `every`.
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


def monte_carlo(code: Code, sigmas: Sequence[float], *, draws: int = 64, seed: int = 0) -> list[MonteCarlo]:
    """The truth at each noise, of the candidates that were run.

    >>> code = Code(torch.tensor([[0.0], [2.0]]), torch.tensor([0.5, 0.5]))
    >>> near, far = monte_carlo(code, [0.1, 2.0], draws=4000)
    >>> round(near.bits, 3), abs(far.bits - 0.1607) < 4 * far.error  # 0.1607: by numerical integration
    (1.0, True)
    """
    return [
        MonteCarlo(
            bits=float(one.bits.mean()),
            error=float(one.bits.std() / len(one.bits) ** 0.5),
            accuracy=float(one.right.mean()),
            draws=len(one.bits),
        )
        for one in draws_of(code, sigmas, draws=draws, seed=seed)
    ]
