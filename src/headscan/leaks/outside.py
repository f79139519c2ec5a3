"""States from outside, with noise that nobody knows: its size is estimated while the tokens are read."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from scipy import stats
from torch import Tensor

from headscan.leaks.priors import Prior
from headscan.leaks.result import OutsideStates
from headscan.model.slicing import SlicedModel
from headscan.model.slicing.prefix import Prefix
from headscan.run import Progress
from headscan.text import display

__all__ = ["estimated", "read_through_noise"]

BEAM = 8


@torch.no_grad()
def read_through_noise(
    cut: SlicedModel, seen: Float[Tensor, "T w"], prior: Prior, *, start: Int[Tensor, " s"] | None = None, beam: int = BEAM,
    progress: Progress | None = None,
) -> tuple[Int[Tensor, " T"], float]:  # fmt: skip
    """The likeliest tokens of states with Gaussian noise of unknown size, and that size.

    From left to right, `beam` prefixes at a time. With residuals r of n numbers so far the likelihood, at the noise that makes it
    largest (σ² = Σ r² / n), is −(n/2) ln Σ r² up to a constant: prefixes are ranked by that plus ln p of their tokens. No size of
    noise is asked for; the prior of a first token, where nothing comes before it, is uniform.

    Args:
        cut: a causal slice.
        seen: [T, w] what leaked, from the first token after `start` on.
        prior: of the tokens.
        start: tokens that are known to come before.
        beam: prefixes kept.
        progress: told the tokens read.

    Returns:
        tokens [T], and σ in the unit of the states: √(Σ r² / T w), a little too small where the noise is so large that the
        nearest token is often not the one.

    Cost: beam · V runs a token.
    """
    ids = torch.zeros(1, 0, dtype=torch.int64) if start is None else start[None]
    begun, goal = ids.shape[1], seen.double().cpu()
    every = torch.arange(cut.vocabulary_size)
    squares, beliefs = torch.zeros(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    for place, target in enumerate(goal):
        behind = Prefix(cut, ids)
        rows = torch.arange(len(ids)).repeat_interleave(len(every)).to(cut.lens.device)
        points = behind.evaluate(rows, every.repeat(len(ids)).to(cut.lens.device)).cpu().double()
        far = (points - target).square().sum(1).unflatten(0, (len(ids), -1)) + squares[:, None]
        shares = prior(ids)[:, -1].log() if ids.shape[1] else torch.zeros(1, len(every), dtype=torch.float64)
        belief = beliefs[:, None] + shares
        score = belief - (place + 1) * goal.shape[1] / 2 * far.clamp_min(1e-300).log()
        best = score.flatten().topk(min(beam, score.numel())).indices
        best = best[score.flatten()[best] > -math.inf]
        ids = torch.cat([ids[best // len(every)], (best % len(every))[:, None]], 1)
        squares, beliefs = far.flatten()[best], belief.flatten()[best]
        if progress:
            progress("reading through noise", place + 1, len(goal), "tokens")
    return ids[0, begun:], float((squares[0] / goal.numel()).sqrt())


@torch.no_grad()
def estimated(
    cut: SlicedModel, seen: Float[Tensor, "T w"], ids: Int[Tensor, " T"], read: Int[Tensor, " T"], sigma_read: float,
    scale: float,
) -> OutsideStates:  # fmt: skip
    """The noise of states whose tokens are known, beside what was read without knowing them.

    Args:
        cut: the slice that the states are of.
        seen: [T, w] what leaked.
        ids: [T] its tokens.
        read, sigma_read: what `read_through_noise` gave.
        scale: rms of the site's centred coordinates, the unit of `noise`.
    """
    left = (seen.double().cpu() - cut.run(ids[None].to(cut.lens.device))[0].double().cpu()).flatten()
    count, power = left.numel(), float(left.square().mean())
    sigma = power**0.5
    low, high = (sigma * (count / float(stats.chi2.ppf(share, count))) ** 0.5 for share in (0.975, 0.025))
    return OutsideStates(
        tokens=len(ids), sigma=sigma, sigma_interval=(low, high), sigma_read=sigma_read, noise=sigma / scale,
        kurtosis=float(left.pow(4).mean()) / power**2 - 3 if power else None,
        accuracy=float((read.cpu() == ids.cpu()).double().mean()), strings=display(cut.lens.tokenizer, read.tolist()),
    )  # fmt: skip
