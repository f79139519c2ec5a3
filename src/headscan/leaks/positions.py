"""Bits token by token: at each position of a text every candidate's release is computed after the
true tokens before it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headscan.leaks.bounds import Code, code_bits, draws_of, leak_bounds
from headscan.model.lens import Lens
from headscan.model.slicing import SlicedModel
from headscan.model.slicing.prefix import Prefix
from headscan.run import BadInput

# ---- What an attacker knows of a text before anything leaks: the probability of every token at a position.

Prior = Callable[[Int[Tensor, "B T"]], Float[Tensor, "B T V"]]
"""From token rows to the probabilities of what follows each of their tokens, float64, on the CPU.
"""

SENTENCES = {
    "model": "The attacker expects each token as this model itself does, given the tokens before "
    "it.",
    "uniform": "The attacker takes all tokens of the vocabulary as equally likely.",
    "text": "The attacker knows how often each token stands in this text, and nothing of their "
    "order.",
}


def prior_of(name: str, lens: Lens, texts: Sequence[Sequence[int]]) -> Prior:
    """The prior of a name; BadInput where the model says nothing of the next token."""
    size = lens.vocabulary_size
    if name == "model":
        if not (lens.traits.predicts and lens.traits.causal) or lens.width("head") < size:
            raise BadInput(
                f"'{lens.name}' says nothing of the next token: choose --prior text or uniform."
            )
        return lambda ids: _expected(lens, ids, size)
    if name == "uniform":
        flat = torch.full((size,), 1 / size, dtype=torch.float64)
    else:
        counts = torch.bincount(
            torch.tensor([token for text in texts for token in text]), minlength=size
        ).double()
        flat = counts / counts.sum()
    return lambda ids: flat.expand(*ids.shape, size)


@torch.no_grad()
def _expected(lens: Lens, ids: Tensor, size: int) -> Tensor:
    # padded vocabularies have no such tokens
    logits = lens.run(ids, sites="head")["head"][..., :size]
    return logits.double().softmax(-1).cpu()


def cut_prior(
    shares: Float[Tensor, " V"], most: int | None
) -> tuple[Int[Tensor, " M"], Callable[[Tensor], Code]]:
    """The likeliest candidates of a prior, at most `most`, and what makes a `Code` of their
    releases. Tokens of probability 0 are none; the probability of the others that are not run is
    kept apart, so that the bounds hold for the whole prior.
    """
    order = shares.argsort(descending=True, stable=True)
    order = order[shares[order] > 0]
    most = len(order) if most is None else min(most, len(order))
    inside = order[:most]
    outside = shares[order[most:]]
    return inside, lambda points: Code(
        points, shares[inside].to(points.device), outside.to(points.device)
    )


@dataclass(frozen=True, kw_only=True)
class PositionLeak:
    """One position, site and noise."""

    site: int
    level: int  # which of the site's noises
    entropy: float  # of the prior
    likeliest: float  # largest probability of the prior
    kept: float  # prior probability of the candidates that were run
    candidates: int  # those that were run
    lower: float
    upper: float
    lower_by: str
    upper_by: str
    ceiling: float
    truth: float | None  # by Monte Carlo; None where not all candidates were run
    variance: float | None  # of the truth's error
    accuracy: float  # of the posterior attack, in the mean over the prior
    right: float  # whether the attack names the text's own token


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
    """What the release at each position but the first tells of its token to one who knows those
    before it.

    `widths` are the features of each site, as the slice puts them together, `sigmas` its noises, in
    the release's unit; 0 for a release that was rounded and nothing else. `draws` Monte Carlo draws
    are made of each site and noise.

    This is A_t = I(X_t; Y_t | X_1 ... X_t−1 = x_1 ... x_t−1), at the tokens of this text. Where f
    is causal and each release has noise of its own, Y_1 ... Y_t−1 say nothing more once the tokens
    are known, and by the chain rule Σ A_t in the mean over texts drawn from the prior is at most
    I(X; Y) of whole texts. What it leaves out is what later releases tell of this token. On a text
    that was not drawn from the prior each term holds for its context; the sum is a mean over these
    contexts.

    Cost: T · M releases behind a cached prefix, and for each site and position M² exponentials a
        noise.
    """
    clean = cut.run(ids[None].to(cut.lens.device))[0].double().cpu()
    shares = prior(ids[None])[0]
    prefix = Prefix(cut, ids[None, :1])
    found = list[PositionLeak]()
    for place in range(1, len(ids)):
        tokens, coded = cut_prior(shares[place - 1], candidates)
        there = tokens.to(cut.lens.device)
        points = prefix.evaluate(torch.zeros_like(there), there).cpu().split(list(widths), 1)
        own = index_of(ids[place], tokens)
        for site, (rows, truth) in enumerate(
            zip(points, clean[place].split(list(widths)), strict=True)
        ):
            found += at_position(
                coded(rows), truth, own, site, sigmas[site], draws, seed + 7919 * place + site
            )
        if place + 1 < len(ids):
            prefix.extend(ids[None, place : place + 1].to(cut.lens.device))
    return found


def index_of(token: Tensor, tokens: Int[Tensor, " M"]) -> int | None:
    places = (tokens == token).nonzero()
    return int(places[0]) if len(places) else None


def at_position(
    code: Code,
    truth: Float[Tensor, " d"],
    own: int | None,
    site: int,
    sigmas: Sequence[float],
    draws: int,
    seed: int,
) -> list[PositionLeak]:
    """Bounds, truth and attacks at one position and site, for each noise; `own` is the text's token
    among the candidates.
    """
    generator = torch.Generator().manual_seed(seed)
    found = list[PositionLeak]()
    noises = [sigma for sigma in sigmas if sigma > 0]
    noisy = iter(
        zip(leak_bounds(code, noises), draws_of(code, noises, draws=draws, seed=seed), strict=True)
        if noises
        else ()
    )
    for level, sigma in enumerate(sigmas):
        seen = truth + sigma * torch.randn(truth.shape, generator=generator, dtype=torch.float64)
        if sigma > 0:
            bound, draw = next(noisy)
            bits, variance, accuracy = (
                draw.mean,
                float(draw.bits.var()) / len(draw.bits),
                code.kept * draw.accuracy,
            )
        else:
            bound = code_bits(code)
            bits = bound.lower
            variance = 0.0
            accuracy = bound.accuracy_upper - (1 - code.kept)
        whole = not len(code.outside)
        found += [
            PositionLeak(
                site=site,
                level=level,
                entropy=code.entropy,
                likeliest=code.likeliest,
                kept=code.kept,
                candidates=len(code.points),
                lower=bound.lower,
                upper=bound.upper,
                lower_by=bound.lower_by,
                upper_by=bound.upper_by,
                ceiling=bound.accuracy_upper,
                truth=bits if whole else None,
                variance=variance if whole else None,
                accuracy=accuracy,
                right=float(_likeliest(code, seen, sigma) == own),
            )
        ]
    return found


def _likeliest(code: Code, seen: Float[Tensor, " d"], sigma: float) -> int:
    far = (code.points.double() - seen).square().sum(1)
    nearest = torch.where(far <= far.min(), code.masses.double(), 0.0)
    return int((code.masses.log() - far / (2 * sigma**2) if sigma > 0 else nearest).argmax())
