"""Bits of whole texts: the particle sandwich on a language model, whose own texts are what leaks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from headscan.leaks.bounds import Code
from headscan.leaks.noise_laws import GAUSSIAN, Law
from headscan.leaks.positions import Asked, PositionLeak, Prior, at_position
from headscan.leaks.result import WholeText
from headscan.model.slicing import SlicedModel
from headscan.model.slicing.prefix import Prefix
from headscan.run import Progress
from headscan.statistics.uncertainty import clustered

# ---- What all releases tell of one token to one who knows all the others: later ones of earlier tokens included.

BATCH = 256


def places_of(length: int, count: int) -> list[int]:
    """So many positions of a window, evenly spaced, the first (which is known) left out.

    >>> places_of(21, 2), places_of(3, 9), places_of(5, 0)
    ([1, 11], [1, 2], [])
    """
    count = min(count, length - 1)
    return [1 + place * (length - 1) // count for place in range(count)]


@torch.no_grad()
def leave_one_out_leaks(
    cut: SlicedModel, ids: Int[Tensor, " T"], asked: Asked, places: list[int], *, joined: bool
) -> list[PositionLeak]:
    """B_t = I(X_t; Y | all other tokens) at some positions t, under the true tokens before and after.

    Given the tokens before t, the releases there are known but for their noise, so what counts are those from t on, as one
    vector. The prior is that of the token given all others, p(v | x_<t) · p(x_>t | x_<t, v) divided by its sum, where the prior
    is a model's; tokens that are independent have the prior they have.

    Cost: V · T token positions at each, of the slice and, with a model's prior, of the head; V² exponentials a site and noise.
    """
    clean, found = cut.run(ids[None].to(cut.lens.device))[0].double().cpu(), list[PositionLeak]()
    for place in places:
        rows = ids.repeat(cut.vocabulary_size, 1)
        rows[:, place] = torch.arange(cut.vocabulary_size)
        shares = asked.prior(ids[None])[0, place - 1]
        if joined:
            shares = torch.softmax(shares.log() + _later(asked, rows, place), 0)
        there = (shares > 0).nonzero()[:, 0]
        seen = torch.cat([cut.run(some.to(cut.lens.device))[:, place:].cpu() for some in rows[there].split(BATCH)])
        gone = [one - place for one in range(place, len(ids)) if asked.withheld(one)]
        own = (there == ids[place]).nonzero()
        start = 0
        for site, width in enumerate(asked.widths):
            part, truth = seen[..., start : start + width].clone(), clean[place:, start : start + width].clone()
            part[:, gone], truth[gone] = 0, 0
            found += at_position(
                Code(part.flatten(1), shares[there]), truth.flatten(), int(own[0]) if len(own) else None, site,
                asked.sigmas[site], asked.draws, asked.seed + 7919 * place + site, asked.law,
            )  # fmt: skip
            start += width
    return found


def _later(asked: Asked, rows: Int[Tensor, "V T"], place: int) -> Float[Tensor, " V"]:
    if place + 1 == rows.shape[1]:
        return torch.zeros(len(rows), dtype=torch.float64)
    found = []
    for some in rows.split(BATCH):
        shares = asked.prior(some)[:, place:-1]
        found.append(shares.gather(2, some[:, place + 1 :, None])[..., 0].log().sum(1))
    return torch.cat(found)


# ---- What all releases of a text together tell of the whole text, between two runs of a particle filter.
#
# X = X_1 ... X_T has the prior p, and Y_t = f(X_1 ... X_t) + σ N(0, I), with noise of its own at each t. In nats
#
#     I(X; Y) = E[log p(Y | X)] − E[log p(Y)],
#
# the first term is that of the noise, which is known. p(y) is a sum over V^T texts. The filter keeps P prefixes; at step t
# it weighs all V continuations of each by prior and likelihood,
#
#     z_t = (1/P) Σ_i Σ_v p(v | prefix_i) N(y_t; f(prefix_i v), σ²),
#
# and draws P new prefixes from these P·V weights (fully adapted auxiliary filter; Pitt and Shephard 1999). p̂ = Π z_t.
#
# From above. E p̂ = p(y) for every y, so E log p̂ ≤ log p(y) by Jensen: with a *free* run E[−log p̂] is at least −log p(y).
#
# From below. Let one of the P prefixes be forced to be the true one at each step (conditional filter; Andrieu, Doucet and
# Holenstein 2010). Its law has the density p̂ / p(y) with respect to the free run's, given that x is drawn from the posterior,
# as the true text is. So E log p̂ − log p(y) = KL(conditional ‖ free) ≥ 0: with a *conditional* run E[−log p̂] is at most
# −log p(y). (The same idea as Grosse, Ghahramani and Adams, "Sandwiching the marginal likelihood", arXiv:1511.02543.)
#
# With P = 1 the conditional run is Σ_t of the token-by-token terms A_t exactly: what later releases tell of earlier tokens is
# left out. As P grows both meet. The filter is the posterior attack itself: its prefixes are draws from what an attacker with
# this prior believes.
#
# Assumptions: f is causal; Gaussian noise, equal and independent; the texts are drawn from the prior (for a text that was
# not, the difference is no information but a log-likelihood ratio). Both bounds hold in expectation: what is given is a mean
# over texts with its standard error. What it does not say: nothing of one text, and nothing of a prior that knows more. The
# free run has a heavy tail where the noise is large and P small: raise P.


class Stepper(Protocol):
    """What the filter needs of a model and its release."""

    def __call__(self, prefixes: Int[Tensor, "U t"]) -> tuple[Float[Tensor, "U V"], Float[Tensor, "U V d"]]:
        """For each prefix log p(v | prefix), in nats, and the clean release at the position of v, for every v."""


@torch.no_grad()
def evidence(
    step: Stepper, seen: Float[Tensor, "T d"], sigma: float, particles: int, *, start: Int[Tensor, " s"],
    keep: Int[Tensor, " T"] | None = None, generator: torch.Generator, law: Law = GAUSSIAN,
) -> tuple[float, Int[Tensor, " T"]]:  # fmt: skip
    """log p̂(y) in nats, without the noise's constant, and the tokens of one of the last prefixes.

    Cost: at most P · V · T releases; equal prefixes are run once.
    """
    prefixes, total = start[None].repeat(particles, 1), 0.0
    for place in range(len(seen)):
        some, count = torch.unique(prefixes, dim=0, return_counts=True)
        prior, points = step(some)
        vocabulary = prior.shape[1]
        far = law.surprise((points.double() - seen[place].double()) / sigma)
        weights = (prior.double() + count.to(prior.device).log()[:, None] - far).flatten().cpu()
        total += float(torch.logsumexp(weights, 0)) - math.log(particles)
        picked = torch.multinomial(torch.softmax(weights, 0), particles, replacement=True, generator=generator)
        prefixes = torch.cat([some[picked // vocabulary], (picked % vocabulary)[:, None]], 1)
        if keep is not None:
            prefixes[0] = torch.cat([start, keep[: place + 1]])
    return total, prefixes[-1, len(start) :]


@torch.no_grad()
def sandwich(
    step: Stepper, texts: Sequence[Int[Tensor, " T"]], releases: Sequence[Float[Tensor, "T d"]], sigma: float,
    particles: int, *, start: Int[Tensor, " s"], seed: int = 0, law: Law = GAUSSIAN,
) -> WholeText:  # fmt: skip
    """Both bounds at one noise, in the mean over texts that were drawn from the prior; of no site, with σ as the noise."""
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for text, clean in zip(texts, releases, strict=True):
        noise = law.draw(clean.shape, generator)
        seen = (clean.double().cpu() + sigma * noise).to(clean.device)
        own = -float(law.surprise(noise).sum())
        runs = [
            evidence(step, seen, sigma, count, start=start, keep=keep, generator=generator, law=law)
            for count, keep in ((1, text), (particles, text), (particles, None))
        ]
        right = float((runs[2][1].cpu() == text.cpu()).double().mean())
        rows.append([(own - total) / math.log(2) / len(text) for total, _ in runs] + [right])
    table = torch.tensor(rows, dtype=torch.float64)
    mean = table.mean(0).tolist()
    error = (table.std(0) / len(table) ** 0.5).tolist() if len(table) > 1 else [math.inf] * 4
    gap = float((table[:, 2] - table[:, 1]).std() / len(table) ** 0.5) if len(table) > 1 else math.inf
    shares = table[:, 3].numpy()
    ends = clustered(lambda taken: float(np.mean(shares[taken])), len(shares), bounds=(0, 1))
    return WholeText(
        site="", noise=sigma, prior_bits=math.nan, texts=len(table),
        tokens=len(texts[0]), particles=particles, own_bits=mean[0], own_bits_error=error[0], bits_lower=mean[1],
        bits_lower_error=error[1], bits_upper=mean[2], bits_upper_error=error[2], gap_error=gap, accuracy=mean[3],
        accuracy_interval=None if ends is None else (ends[0], ends[1]),
    )  # fmt: skip


# Texts that are drawn from the model, and tokens of each.
TEXTS, TOKENS = 8, 12


def stepper(cut: SlicedModel, prior: Prior, withheld: Callable[[int], bool] = lambda place: False) -> Stepper:
    """What the filter needs of a slice and a prior; a withheld release is the same, 0, for every token.

    Cost: V releases behind each prefix, and the prefixes themselves.
    """
    vocabulary = torch.arange(cut.vocabulary_size, device=cut.lens.device)

    def step(prefixes: Tensor) -> tuple[Tensor, Tensor]:
        shares = prior(prefixes)[:, -1]
        if withheld(prefixes.shape[1]):
            return shares.log(), torch.zeros(*shares.shape, cut.width)
        behind, count = Prefix(cut, prefixes), len(prefixes)
        rows = torch.arange(count, device=vocabulary.device).repeat_interleave(len(vocabulary))
        points = behind.evaluate(rows, vocabulary.repeat(count))
        return shares.log(), points.unflatten(0, (count, -1)).cpu()

    return step


@torch.no_grad()
def drawn_texts(prior: Prior, start: Int[Tensor, " s"], texts: int, tokens: int, seed: int) -> tuple[Tensor, float]:
    """Texts [N, T] drawn from a prior after a start, and their bits a token, −log2 p in the mean."""
    generator = torch.Generator().manual_seed(seed)
    rows, nats = start[None].repeat(texts, 1), 0.0
    for _ in range(tokens):
        shares = prior(rows)[:, -1]
        drawn = torch.multinomial(shares, 1, generator=generator)
        nats -= float(shares.gather(1, drawn).log().mean())
        rows = torch.cat([rows, drawn], 1)
    return rows[:, len(start) :], nats / math.log(2) / tokens


@torch.no_grad()
def sequence_bits(
    cut: SlicedModel, site: str, prior: Prior, start: Int[Tensor, " s"], noises: list[tuple[float, float]], particles: int, *,
    seed: int, progress: Progress | None = None, texts: int = TEXTS, tokens: int = TOKENS,
    law: Law = GAUSSIAN, withheld: Callable[[int], bool] = lambda place: False, defence: str = "none",
) -> list[WholeText]:  # fmt: skip
    """The sandwich at each noise (in rms, and in the release's unit), on texts drawn from the prior after `start`."""
    rows, bits = drawn_texts(prior, start, texts, tokens, seed)
    whole = torch.cat([start[None].expand(len(rows), -1), rows], 1)
    clean = cut.run(whole.to(cut.lens.device))[:, len(start) :].double().cpu()
    clean[:, [place for place in range(tokens) if withheld(len(start) + place)]] = 0
    step, found = stepper(cut, prior, withheld), list[WholeText]()
    for number, (noise, sigma) in enumerate(noises):
        if progress:
            progress(f"whole texts at {site}", number, len(noises), "noises")
        both = sandwich(step, list(rows), list(clean), sigma, particles, start=start, seed=seed + 1, law=law)
        found.append(replace(both, site=site, defence=defence, noise=noise, prior_bits=bits))
    return found
