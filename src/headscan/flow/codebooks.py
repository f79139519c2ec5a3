"""Codebooks: the outputs that all tokens of the vocabulary have at one place, and how far apart they lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float32, Int
from torch import Tensor

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
    whole = Slice(sites=(slice_,)) if isinstance(slice_, str) else slice_
    cut = whole.but(tokens="-1").on(lens)
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
