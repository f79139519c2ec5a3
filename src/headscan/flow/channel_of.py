"""The channel of one model: its code book, noise and rounding on it, and the widths that searches need."""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor

from headscan.flow.bounds import channel_bound
from headscan.flow.capacity import noise_accuracy, quantised_accuracy
from headscan.flow.codebook import codebook, distances
from headscan.flow.cost import affordable, multiplications
from headscan.flow.result import ChannelPart
from headscan.flow.settings import Channelling
from headscan.flow.variants import variant
from headscan.flow.width import SEARCHES, threshold, width_sweep
from headscan.model import Lens
from headscan.model.slicing import Slice
from headscan.run import Run

__all__ = ["channel_of"]

SEARCHED_PROMPTS, SEARCHED_TOKENS = 2, 8
"""Prompts, and tokens of each, that are searched for at each width: a search costs seconds, not the forward pass."""


def channel_of(
    lens: Lens, name: str, sites: tuple[str, ...], ids: Int[Tensor, "N T"], *, settings: Channelling, run: Run
) -> ChannelPart:
    """The channel of one model and cut, at its deepest site.

    The code book is that of the last token of the first prompt; searches look at the first eight tokens of the first two.
    Where the whole vocabulary, or a search that was not asked for, would take more than minutes, some tokens are drawn,
    the search is left out, and both are told.
    """
    seed, done = settings.seed, 0

    def step(stage: str) -> None:
        nonlocal done
        run.progress(f"{lens.name}, {name} · {stage}", done, len(searches) + 3, "steps")
        done += 1

    cut = variant(name, [variant(name, sites).on(lens).sites[-1]])
    few = ids[:SEARCHED_PROMPTS, :SEARCHED_TOKENS]
    searches, left_out = affordable_searches(lens, cut, few.numel(), settings)
    tokens = affordable_tokens(lens, cut, ids.shape[1], settings)
    if tokens is not None:
        left_out.append(
            f"The code book of {lens.name}, {name} has {len(tokens)} tokens drawn from the vocabulary of "
            f"{lens.vocabulary_size}: distances to the nearest other token are upper bounds, and so is what is decoded."
        )
    for sentence in left_out:
        run.announce(sentence)
    step("code book")
    book = codebook(
        lens, cut, ids[0, :-1].tolist(), tokens=tokens, rows=512 if tokens is None else 64, progress=run.progress
    )
    size = book.shape[1]
    thresholds = []
    for search in searches:
        step(f"threshold, {search} search")
        for subset, first in (("contiguous", 0), ("contiguous", size // 2), ("random", 0)):
            thresholds.append(threshold(lens, cut, few, search, first=first, subset=subset, seed=seed))
    step("noise and rounding")
    noisy = noise_accuracy(book, noises=settings.noises(), trials=settings.trials, seed=seed)
    rounded = quantised_accuracy(book, bits=settings.precisions(), seed=seed)
    step("widths")
    widths = sorted({min(4**k, size) for k in range(size.bit_length() // 2 + 2)})
    return ChannelPart(
        model=lens.name,
        cut=name,
        site=cut.sites[0],
        vocabulary=len(book),
        width=size,
        distances=distances(book),
        noise=noisy,
        quantised=rounded,
        bounds=[channel_bound(book, level) for level in sorted({row.noise for row in noisy})],
        widths=width_sweep(lens, cut, few, widths, searches=searches, seed=seed),
        thresholds=thresholds,
        left_out=left_out,
    )


def affordable_tokens(lens: Lens, cut: Slice, length: int, settings: Channelling) -> Int[Tensor, " C"] | None:
    """The tokens of a code book that a quarter of the budget has room for, drawn and in order; None: all of them.

    A code word costs a row of `length` tokens, or one token behind a cached prefix; all pairs are compared per precision.
    """
    body, pair = multiplications(lens, cut.sites), 2.0 * lens.width(cut.sites[0]) * len(settings.precisions())
    pairs = affordable(lens, pair, 0.25)
    if lens.vocabulary_size <= min(affordable(lens, length * body, 0.25), pairs**0.5):
        return None
    count = max(2, min(affordable(lens, body, 0.25), int(pairs**0.5), lens.vocabulary_size))
    generator = torch.Generator().manual_seed(settings.seed)
    return torch.randperm(lens.vocabulary_size, generator=generator)[:count].sort().values


def affordable_searches(lens: Lens, cut: Slice, tokens: int, settings: Channelling) -> tuple[list[str], list[str]]:
    """The searches to do, and what is said of those that are left out: those asked for are done, others if affordable.

    Three thresholds take log2(width) searches each, the sweep two for every fourfold width. An exact search runs the
    vocabulary once and some dozens of candidates a token; a step of a descent is a pass and its gradient.
    """
    names = settings.search_names()
    if settings.searches is not None:
        return names, []
    size = lens.width(cut.sites[0])
    calls, body = 3 * (1 + size.bit_length()) + 2 * (size.bit_length() // 2 + 2), multiplications(lens, cut.sites)
    done, left_out = [], []
    for name in names:
        descent = SEARCHES[name]
        passes = lens.vocabulary_size + 64 * tokens if descent is None else 3 * descent.steps * tokens
        if affordable(lens, calls * passes * body, 0.25):
            done.append(name)
        else:
            left_out.append(
                f"The {name} search was left out: {calls} searches at {cut.sites[0]} take too long (--search)."
            )
    return done, left_out
