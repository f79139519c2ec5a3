"""The channel from a token to its output: code book, noise, rounding, and how many features a search needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from headscan.flow.capacity import noise_accuracy, quantised_accuracy, shannon_width
from headscan.flow.codebook import codebook, distances
from headscan.flow.variants import options_of, variant
from headscan.flow.width import threshold, width_sweep
from headscan.model import Lens

__all__ = ["channel"]

PROMPTS, LENGTH = 2, 8
"""Prompts, and tokens of each, that are searched for at each width: a search costs seconds, not the forward pass."""


def channel(
    lens: Lens, name: str, site: str, ids: torch.Tensor, *, searches: Sequence[str] = ("exact", "adam"), seed: int = 0
) -> dict[str, Any]:
    """Everything `headscan flow --channel` says of one part.

    Args:
        lens: the model.
        name: of a cut, see `headscan.flow.VARIANTS`.
        site: whose output is the channel.
        ids: prompts [N, T]; the code book is that of the last token of the first, searches look at the
            first eight tokens of the first two.
        searches: names of searches of `headscan.flow.width`.
        seed: of noise and random features.

    Returns:
        distances, noise, quantised: see `headscan.flow.capacity` and `codebook`; shannon: w* by noise; widths: rows of
        {width, subset, search, accuracy}; thresholds: of each search, the fewest features from the first on, from the
        middle on and at random with which every token is found (null: not even all do), and the widths tried.
    """
    book = codebook(lens, variant(name, [site]), ids[0, :-1].tolist())
    size = book.shape[1]
    few, cut = ids[:PROMPTS, :LENGTH], options_of(name)
    widths = sorted({min(4**k, size) for k in range(size.bit_length() // 2 + 2)})
    thresholds = []
    for search in searches:
        for subset, first in (("contiguous", 0), ("contiguous", size // 2), ("random", 0)):
            found = threshold(lens, site, few, search, first=first, subset=subset, seed=seed, **cut)
            thresholds.append(
                {"search": search, "subset": subset, "first": first, "width": found.width,
                 "tried": [{"width": width, "accuracy": right} for width, right in sorted(found.tried.items())]}
            )  # fmt: skip
    noises = noise_accuracy(book, seed=seed)
    return {
        "site": site,
        "vocabulary": len(book),
        "width": size,
        "distances": distances(book),
        "noise": noises,
        "quantised": quantised_accuracy(book, seed=seed),
        "shannon": [
            {"noise": n, "width": shannon_width(len(book), n)} for n in sorted({row["noise"] for row in noises})
        ],
        "widths": width_sweep(lens, site, few, widths, searches=searches, seed=seed, **cut),
        "thresholds": thresholds,
    }
