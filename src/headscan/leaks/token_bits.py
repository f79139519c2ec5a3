"""Bits token by token: at each position of a text every candidate's release is computed after the
true tokens before it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headscan.leaks.bounds import Code, LeakBounds, code_bits, draws_of, leak_bounds
from headscan.leaks.priors import Prior, cut_prior
from headscan.model.slicing import SlicedModel
from headscan.model.slicing.prefix import Prefix
from headscan.run import BadInput

POSITION_STEP = 7919  # between the seeds of two positions: a prime


@dataclass(frozen=True, kw_only=True)
class PositionLeak:
    """The leak at one position, site and noise.

    Attributes:
        site: number of the site.
        level: number of the site's noise.
        entropy, likeliest: entropy and largest probability of the prior.
        mass: prior probability of the candidates that were run.
        candidates: the number of those.
        lower, upper: proved bounds, in bits; lower_by, upper_by: which bound it is.
        ceiling: an accuracy that no attack exceeds.
        truth: bits by Monte Carlo; None where not all candidates were run.
        variance: of the truth's error.
        accuracy: of the posterior attack, in the mean over the prior.
        right: 1 if the attack names the text's own token, else 0.
    """

    site: int
    level: int
    entropy: float
    likeliest: float
    mass: float
    candidates: int
    lower: float
    upper: float
    lower_by: str
    upper_by: str
    ceiling: float
    truth: float | None
    variance: float | None
    accuracy: float
    right: float


@torch.no_grad()
def position_leaks(
    cut: SlicedModel,
    ids: Int[Tensor, " T"],
    *,
    widths: Sequence[int],
    sigmas: Sequence[Sequence[float]],
    prior: Prior,
    candidates: int | None,
    draws: int,
    seed: int,
) -> list[PositionLeak]:
    """Return what the release at each position but the first tells of its token.

    The attacker knows the tokens before it. This is A_t = I(X_t; Y_t | X_1 ... X_t−1 = x_1 ...
    x_t−1), at the tokens of this text. Where f is causal and each release has noise of its own, Y_1
    ... Y_t−1 say nothing more once the tokens are known, and by the chain rule Σ A_t in the mean
    over texts drawn from the prior is at most I(X; Y) of whole texts. It leaves out what later
    releases tell of this token. On a text that was not drawn from the prior each term holds for its
    context; the sum is a mean over these contexts.

    Cost: T · M releases behind a cached prefix, and for each site and position M² exponentials a
    noise.

    Args:
        cut: the sites as one slice.
        ids: the tokens of the text.
        widths: the features of each site, in the slice's order.
        sigmas: the noises of each site, in the release's unit; 0 for a release that was rounded
            and nothing else.
        prior: what the attacker knows of texts.
        candidates: candidates of a position; None: all.
        draws: Monte Carlo draws of each site and noise.
        seed: seed of the draws.

    Raises:
        BadInput: where the prior's probabilities are not finite.
    """
    row = ids[None].to(cut.lens.device)
    clean = cut.run(row)[0].double().cpu()
    shares = prior(ids[None])[0]
    if not bool(shares.isfinite().all()):
        raise BadInput(
            "The predictions of the attacker's prior are not finite: look for broken weights, or "
            "give another --prior."
        )
    prefix = Prefix(cut, ids[None, :1])
    leaks: list[PositionLeak] = []
    for position in range(1, len(ids)):
        tokens, code_of = cut_prior(shares[position - 1], candidates)
        on_device = tokens.to(cut.lens.device)
        releases = prefix.evaluate(torch.zeros_like(on_device), on_device).cpu()
        by_site = zip(
            releases.split(list(widths), 1), clean[position].split(list(widths)), strict=True
        )
        for site, (points, release) in enumerate(by_site):
            leaks += leaks_at(
                code_of(points),
                release,
                index_of(ids[position], tokens),
                sigmas[site],
                draws=draws,
                seed=seed + POSITION_STEP * position + site,
                site=site,
            )
        if position + 1 < len(ids):
            prefix.extend(ids[None, position : position + 1].to(cut.lens.device))
    return leaks


def index_of(token: Tensor, tokens: Int[Tensor, " M"]) -> int | None:
    """Return the index of a token among the candidates; None where it is none of them."""
    indices = (tokens == token).nonzero()
    return int(indices[0]) if len(indices) else None


def leaks_at(
    code: Code,
    release: Float[Tensor, " d"],
    true_index: int | None,
    sigmas: Sequence[float],
    *,
    draws: int,
    seed: int,
    site: int = 0,
) -> list[PositionLeak]:
    """Return bounds, truth and attack at one position and site, for each noise.

    Args:
        code: the candidates' releases with their prior.
        release: the release of the text's own token.
        true_index: that token among the candidates.
        sigmas: the noises.
        draws: Monte Carlo draws of each noise.
        seed: seed of the draws.
        site: the number of the site.
    """
    generator = torch.Generator().manual_seed(seed)
    measured = iter(_measured_with_noise(code, sigmas, draws, seed))
    complete = not len(code.outside)
    leaks = []
    for level, sigma in enumerate(sigmas):
        noise = torch.randn(release.shape, generator=generator, dtype=torch.float64)
        guess = _likeliest(code, release + sigma * noise, sigma)
        found = next(measured) if sigma > 0 else _measured_without_noise(code)
        leaks.append(
            PositionLeak(
                site=site,
                level=level,
                entropy=code.entropy,
                likeliest=code.likeliest,
                mass=code.kept,
                candidates=len(code.points),
                lower=found.bounds.lower,
                upper=found.bounds.upper,
                lower_by=found.bounds.lower_by,
                upper_by=found.bounds.upper_by,
                ceiling=found.bounds.accuracy_upper,
                truth=found.bits if complete else None,
                variance=found.variance if complete else None,
                accuracy=found.accuracy,
                right=float(guess == true_index),
            )
        )
    return leaks


@dataclass(frozen=True)
class _Measured:
    """Bounds at one noise, with the bits and the accuracy of the best attack."""

    bounds: LeakBounds
    bits: float
    variance: float
    accuracy: float


def _measured_with_noise(
    code: Code, sigmas: Sequence[float], draws: int, seed: int
) -> list[_Measured]:
    """Return what is measured at each noise above 0."""
    noises = [sigma for sigma in sigmas if sigma > 0]
    if not noises:
        return []
    bounds = leak_bounds(code, noises)
    samples = draws_of(code, noises, draws=draws, seed=seed)
    return [
        _Measured(
            bound,
            sample.mean,
            float(sample.bits.var()) / len(sample.bits),
            code.kept * sample.accuracy,
        )
        for bound, sample in zip(bounds, samples, strict=True)
    ]


def _measured_without_noise(code: Code) -> _Measured:
    bounds = code_bits(code)
    return _Measured(bounds, bounds.lower, 0.0, bounds.accuracy_upper - (1 - code.kept))


def _likeliest(code: Code, release: Float[Tensor, " d"], sigma: float) -> int:
    """Return the likeliest candidate of a release; without noise the likeliest of the nearest."""
    squares = (code.points.double() - release).square().sum(1)
    if sigma > 0:
        scores = code.masses.log() - squares / (2 * sigma**2)
    else:
        scores = torch.where(squares <= squares.min(), code.masses.double(), 0.0)
    return int(scores.argmax())
