"""Codebooks: the outputs that all tokens of the vocabulary have at one place, and how far apart they lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float32, Int
from torch import Tensor

from headscan.inversion import Descent, Search, descend, exact
from headscan.inversion.table import share_table
from headscan.model import Lens
from headscan.model.slicing import Slice
from headscan.model.slicing.prefix import Prefix
from headscan.run import BadInput, Progress, no_progress


@dataclass(frozen=True)
class CodebookDistances:
    """How well separated a codebook is, in units of the mean standard deviation of its features."""

    minimum: float  # this and the next: of each token's distance to its nearest other token
    median: float
    expected: float  # √(2 w), about the distance of two tokens in a round cloud of the same spread
    duplicates: int  # tokens whose output another token shares to 1e-6
    participation_ratio: float  # of the centred covariance: the number of directions in use
    feature_std: float  # the unit


def codebook(
    lens: Lens, slice_: Slice | str, prefix: Sequence[int] = (), *, tokens: Int[Tensor, " C"] | None = None,
    rows: int = 512, progress: Progress = no_progress,
) -> Float32[Tensor, "C w"]:  # fmt: skip
    """The last output of a slice or a site for each token behind a prefix; `tokens` None is the whole vocabulary.

    Cost: a row of len(prefix) + 1 tokens each; for chosen `tokens` one token where the model has a key-value cache.
    """
    cut = _slice(slice_).but(tokens="-1").on(lens)
    start = torch.tensor(list(prefix), dtype=torch.int64)
    wanted = torch.arange(lens.vocabulary_size) if tokens is None else tokens
    known = Prefix(cut, start[None]) if tokens is not None and cut.causal and len(start) else None
    words: list[Tensor] = []
    for chunk in wanted.split(rows):
        progress("codebook", len(words) * rows, len(wanted), "tokens")
        with torch.no_grad():
            if known is not None:
                there = chunk.to(lens.device)
                words.append(known.evaluate(torch.zeros_like(there), there).float().cpu())
            else:
                ids = torch.cat([start.expand(len(chunk), -1), chunk[:, None]], 1)
                words.append(cut.run(ids)[:, -1].float().cpu())
    return torch.cat(words)


def distances(book: Float[Tensor, "V w"]) -> CodebookDistances:
    """How well separated a codebook is; BadInput for fewer than two tokens."""
    if len(book) < 2:
        raise BadInput("A codebook has at least two tokens.")
    book = book.double()
    std = float((book - book.mean(0)).std(0, unbiased=False).mean())
    unit = std or 1.0
    nearest = []
    for start in range(0, len(book), 512):
        away = torch.cdist(book[start : start + 512], book, compute_mode="donot_use_mm_for_euclid_dist")
        away[torch.arange(len(away)), torch.arange(start, start + len(away))] = torch.inf
        nearest.append(away.amin(1))
    near = torch.cat(nearest).numpy() / unit
    covariance = torch.cov(book.T, correction=0).reshape(book.shape[1], -1)
    ratio = float(torch.trace(covariance) ** 2 / covariance.square().sum().clamp_min(1e-300))
    return CodebookDistances(
        minimum=float(near.min()), median=float(np.median(near)),
        expected=float(np.sqrt(2 * book.shape[1])), duplicates=int((near < 1e-6).sum()), participation_ratio=ratio,
        feature_std=std,
    )  # fmt: skip


SEARCHES: dict[str, Descent | None] = {"exact": None, "adam": Descent(steps=200)}
"""Name -> how the tokens are looked for: by exact search, or by Adam from a start at the embeddings' scale."""


@dataclass(frozen=True)
class TriedWidth:
    width: int
    accuracy: float


@dataclass(frozen=True)
class Threshold:
    """The fewest features that suffice a search, the first or random ones (None: not even all do), and the widths tried."""

    search: str
    subset: str
    width: int | None
    tried: list[TriedWidth]


def accuracy(lens: Lens, slice_: Slice, prompts: Int[Tensor, "N T"], search: str | Descent = "exact") -> float:
    """The share of tokens of prompts [N, T] that a search of `SEARCHES` recovers from the features that the slice keeps."""
    if isinstance(search, str) and search not in SEARCHES:
        raise BadInput(f"There is no search '{search}'; there are: {', '.join(SEARCHES)}.")
    settings = SEARCHES[search] if isinstance(search, str) else search
    cut = slice_.on(lens)
    if settings is None and Search().ranked_by(cut) == "table":
        share_table(slice_.but(features=":").on(lens), cut)
    with torch.no_grad():
        target = cut.run(prompts)
    if settings is None:
        tokens = torch.tensor([inversion.tokens for inversion in exact(cut, list(target))])
    else:
        tokens = descend(cut, target, prompts.shape[1], settings).tokens.cpu()
    return float((tokens == prompts.cpu()).float().mean())


def threshold(
    lens: Lens, slice_: Slice | str, prompts: Tensor | Sequence[Sequence[int]], search: str | Descent = "adam", *,
    wanted: float = 1.0, subset: str = "first", seed: int = 0,
) -> Threshold:  # fmt: skip
    """Bisect the fewest features with which a share `wanted` of the tokens is found: the "first", or "random" ones.

    Bisection assumes that accuracy grows with the width; `tried` shows where it did not.

    Cost: log2(width) searches.
    """
    ids, whole = torch.as_tensor(prompts), _slice(slice_)
    size = lens.width(whole.sites[0])
    tried: dict[int, float] = {}

    def enough(width: int) -> bool:
        features = f"random({width},{seed})" if subset == "random" else f":{width}"
        tried[width] = accuracy(lens, whole.but(features=features), ids, search)
        return tried[width] >= wanted - 1e-9

    low, high = 0, size + 1  # `high` is enough, or beyond all there is; `low` is not
    if enough(size):
        high = size
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if enough(middle) else (middle, high)
    return Threshold(
        search if isinstance(search, str) else "descent", subset, high if high <= size else None,
        [TriedWidth(width, right) for width, right in sorted(tried.items())],
    )  # fmt: skip


def _slice(given: Slice | str) -> Slice:
    return Slice(sites=(given,)) if isinstance(given, str) else given
