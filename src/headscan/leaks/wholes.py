"""Bits of whole texts: the particle sandwich on a language model, whose own texts are what leaks."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from headscan.geometry.interval import of_items
from headscan.leaks.bounds import GAUSSIAN, Law, Stepper, sandwich
from headscan.leaks.priors import Prior
from headscan.leaks.result import WholeText
from headscan.model.slicing import SlicedModel
from headscan.model.slicing.prefix import Prefix
from headscan.run import Interval, Progress

__all__ = ["TEXTS", "TOKENS", "drawn_texts", "stepper", "whole_texts"]

TEXTS, TOKENS = 8, 12
"""Texts that are drawn from the model, and tokens of each."""


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
def whole_texts(
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
        one = sandwich(step, list(rows), list(clean), sigma, particles, start=start, seed=seed + 1, law=law)
        found.append(
            WholeText(
                site=site, defence=defence, noise=noise, texts=one.texts, tokens=one.tokens, particles=particles, prior_bits=bits,
                bits_lower=one.lower, bits_lower_error=one.lower_error, bits_upper=one.upper, bits_upper_error=one.upper_error,
                gap_error=one.gap_error, own_bits=one.own, own_bits_error=one.own_error, accuracy=one.accuracy,
                accuracy_interval=_interval(one.accuracies),
            )
        )  # fmt: skip
    return found


def _interval(shares: list[float]) -> Interval | None:
    """The 95 % interval of the mean of one share a text."""
    ends = of_items(lambda taken: float(np.mean(np.array(shares)[taken])), len(shares), bounds=(0, 1))
    return None if ends is None else (ends[0], ends[1])
