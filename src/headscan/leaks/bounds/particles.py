"""What all releases of a text together tell of the whole text, between two runs of a particle filter.

X = X_1 ... X_T has the prior p, and Y_t = f(X_1 ... X_t) + σ N(0, I), with noise of its own at each t. In nats

    I(X; Y) = E[log p(Y | X)] − E[log p(Y)],

the first term is that of the noise, which is known. p(y) is a sum over V^T texts. The filter keeps P prefixes; at step t
it weighs all V continuations of each by prior and likelihood,

    z_t = (1/P) Σ_i Σ_v p(v | prefix_i) N(y_t; f(prefix_i v), σ²),

and draws P new prefixes from these P·V weights (fully adapted auxiliary filter; Pitt and Shephard 1999). p̂ = Π z_t.

From above. E p̂ = p(y) for every y, so E log p̂ ≤ log p(y) by Jensen: with a *free* run E[−log p̂] is at least −log p(y).

From below. Let one of the P prefixes be forced to be the true one at each step (conditional filter; Andrieu, Doucet and
Holenstein 2010). Its law has the density p̂ / p(y) with respect to the free run's, given that x is drawn from the posterior,
as the true text is. So E log p̂ − log p(y) = KL(conditional ‖ free) ≥ 0: with a *conditional* run E[−log p̂] is at most
−log p(y). (The same idea as Grosse, Ghahramani and Adams, "Sandwiching the marginal likelihood", arXiv:1511.02543.)

With P = 1 the conditional run is Σ_t of the token-by-token terms A_t exactly: what later releases tell of earlier tokens is
left out. As P grows both meet. The filter is the posterior attack itself: its prefixes are draws from what an attacker with
this prior believes.

Assumptions: f is causal; Gaussian noise, equal and independent; the texts are drawn from the prior (for a text that was
not, the difference is no information but a log-likelihood ratio). Both bounds hold in expectation: what is given is a mean
over texts with its standard error. What it does not say: nothing of one text, and nothing of a prior that knows more. The
free run has a heavy tail where the noise is large and P small: raise P.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headscan.leaks.bounds.law import GAUSSIAN, Law

__all__ = ["Sandwich", "Stepper", "evidence", "sandwich"]


class Stepper(Protocol):
    """What the filter needs of a model and its release."""

    def __call__(self, prefixes: Int[Tensor, "U t"]) -> tuple[Float[Tensor, "U V"], Float[Tensor, "U V d"]]:
        """For each prefix log p(v | prefix), in nats, and the clean release at the position of v, for every v."""


@dataclass(frozen=True, kw_only=True)
class Sandwich:
    """Bits a token that all releases together tell of the whole text, in the mean over texts drawn from the prior.

    Attributes:
        noise: σ, in the unit of the points.
        lower, upper: bits a token, with their standard errors over the texts; the gap's error is that of the paired
            difference.
        own: Σ A_t / T, the part that each token's own release tells (P = 1), with its standard error.
        accuracy: share of tokens that a text drawn from the filter's posterior names rightly; accuracies: of each text.
        texts, tokens, particles: how many texts, tokens of each, prefixes kept.
    """

    noise: float
    lower: float
    lower_error: float
    upper: float
    upper_error: float
    gap_error: float
    own: float
    own_error: float
    accuracy: float
    accuracies: list[float]
    texts: int
    tokens: int
    particles: int


@torch.no_grad()
def evidence(
    step: Stepper, seen: Float[Tensor, "T d"], sigma: float, particles: int, *, start: Int[Tensor, " s"],
    keep: Int[Tensor, " T"] | None = None, generator: torch.Generator, law: Law = GAUSSIAN,
) -> tuple[float, Int[Tensor, " T"]]:  # fmt: skip
    """log p̂(y) in nats, without the noise's constant, and the tokens of one of the last prefixes.

    Args:
        step: the model.
        seen: y_1 ... y_T.
        sigma: of the noise.
        particles: P.
        start: tokens that are known to come before.
        keep: the true text, for the conditional run.
        generator: of the draws.
        law: of the noise.

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
) -> Sandwich:  # fmt: skip
    """Both bounds at one noise, in the mean over texts that were drawn from the prior.

    Args:
        step: the model.
        texts: drawn from the prior, all equally long, without `start`.
        releases: the clean release at each of their tokens.
        sigma: of the noise, which is drawn here.
        particles: P of both runs.
        start: tokens that are known to come before.
        seed: of noise and draws.
        law: of the noise.
    """
    generator = torch.Generator().manual_seed(seed)
    found = []
    for text, clean in zip(texts, releases, strict=True):
        noise = law.draw(clean.shape, generator)
        seen = clean.double().cpu() + sigma * noise
        own = -float(law.surprise(noise).sum())
        runs = [
            evidence(step, seen.to(clean.device), sigma, count, start=start, keep=keep, generator=generator, law=law)
            for count, keep in ((1, text), (particles, text), (particles, None))
        ]
        right = float((runs[2][1].cpu() == text.cpu()).double().mean())
        found.append([(own - one[0]) / math.log(2) / len(text) for one in runs] + [right])
    table = torch.tensor(found, dtype=torch.float64)
    mean = table.mean(0).tolist()
    error = (table.std(0) / len(table) ** 0.5).tolist() if len(table) > 1 else [math.inf] * 4
    gap = float((table[:, 2] - table[:, 1]).std() / len(table) ** 0.5) if len(table) > 1 else math.inf
    return Sandwich(
        noise=sigma, own=mean[0], own_error=error[0], lower=mean[1], lower_error=error[1], upper=mean[2],
        upper_error=error[2], gap_error=gap, accuracy=mean[3], accuracies=table[:, 3].tolist(), texts=len(table),
        tokens=len(texts[0]), particles=particles,
    )  # fmt: skip
