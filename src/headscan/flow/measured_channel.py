"""The channel from a token to its output: code book, noise, rounding, and how many features a search needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jaxtyping import Int
from torch import Tensor

from headscan.flow.capacity import ShannonWidth, noise_accuracy, quantised_accuracy, shannon_width
from headscan.flow.codebook import codebook, distances
from headscan.flow.result import ChannelPart
from headscan.flow.variants import variant
from headscan.flow.width import threshold, width_sweep
from headscan.model import Lens

__all__ = ["measure_channel"]

PROMPTS, LENGTH = 2, 8
"""Prompts, and tokens of each, that are searched for at each width: a search costs seconds, not the forward pass."""


def measure_channel(
    lens: Lens, name: str, site: str, ids: Int[Tensor, "N T"], *, searches: Sequence[str] = ("exact", "adam"),
    noises: Sequence[float] = (0.25, 0.5, 1.0, 2.0), bits: Sequence[int] = (1, 2, 3, 4, 8), trials: int = 400,
    seed: int = 0, step: Callable[[str], None] = lambda stage: None,
) -> ChannelPart:  # fmt: skip
    """Everything that `headscan channel` says of one model and cut.

    Args:
        lens: the model.
        name: of a cut, see `headscan.flow.VARIANTS`.
        site: whose output is the channel.
        ids: prompts; the code book is that of the last token of the first, searches look at the first eight tokens of
            the first two.
        searches: names of searches of `headscan.flow.width`.
        noises, bits, trials: see `headscan.flow.capacity`.
        seed: of noise and random features.
        step: called with what begins now.
    """
    cut = variant(name, [site])
    step("code book")
    book = codebook(lens, cut, ids[0, :-1].tolist())
    size = book.shape[1]
    few = ids[:PROMPTS, :LENGTH]
    widths = sorted({min(4**k, size) for k in range(size.bit_length() // 2 + 2)})
    thresholds = []
    for search in searches:
        for subset, first in (("contiguous", 0), ("contiguous", size // 2), ("random", 0)):
            step(f"threshold, {search} search")
            thresholds.append(threshold(lens, cut, few, search, first=first, subset=subset, seed=seed))
    step("noise and rounding")
    noisy = noise_accuracy(book, noises=noises, trials=trials, seed=seed)
    rounded = quantised_accuracy(book, bits=bits, seed=seed)
    step("widths")
    return ChannelPart(
        lens.name, name, site, len(book), size, distances(book), noisy, rounded,
        [ShannonWidth(n, shannon_width(len(book), n)) for n in sorted({row.noise for row in noisy})],
        width_sweep(lens, cut, few, widths, searches=searches, seed=seed), thresholds,
    )  # fmt: skip
