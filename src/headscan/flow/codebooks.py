"""Codebooks, the outputs that all tokens have at one place: how far apart they lie, and what noise
leaves of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float32, Int
from torch import Tensor

from headscan.model import Lens
from headscan.model.slicing import Slice
from headscan.model.slicing.prefix import Prefix
from headscan.run import BadInput, Interval, Progress, no_progress
from headscan.statistics.information import fano_accuracy, fano_bits, gaussian_bits
from headscan.statistics.uncertainty import wilson


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
    lens: Lens,
    slice_: Slice | str,
    prefix: Sequence[int] = (),
    *,
    tokens: Int[Tensor, " C"] | None = None,
    rows: int = 512,
    progress: Progress = no_progress,
) -> Float32[Tensor, "C w"]:
    """The last output of a slice or a site for each token behind a prefix; `tokens` None is the
    whole vocabulary. Cost: a row of len(prefix) + 1 tokens each; for chosen `tokens` one token
    where the model has a key-value cache.
    """
    cut = (Slice(sites=(slice_,)) if isinstance(slice_, str) else slice_).but(tokens="-1").on(lens)
    start = torch.tensor(list(prefix), dtype=torch.int64)
    candidates = torch.arange(lens.vocabulary_size) if tokens is None else tokens
    known = Prefix(cut, start[None]) if tokens is not None and cut.causal and len(start) else None
    code_words: list[Tensor] = []
    for chunk in candidates.split(rows):
        progress("codebook", len(code_words) * rows, len(candidates), "tokens")
        with torch.no_grad():
            if known is not None:
                outputs = known.evaluate(
                    torch.zeros_like(chunk, device=lens.device), chunk.to(lens.device)
                )
            else:
                outputs = cut.run(torch.cat([start.expand(len(chunk), -1), chunk[:, None]], 1))[
                    :, -1
                ]
        code_words.append(outputs.float().cpu())
    return torch.cat(code_words)


def distances(book: Float[Tensor, "V w"]) -> CodebookDistances:
    """How well separated a codebook is; BadInput for fewer than two tokens."""
    if len(book) < 2:
        raise BadInput("A codebook has at least two tokens.")
    book = book.double()
    std = float((book - book.mean(0)).std(0, unbiased=False).mean())
    nearest = []
    for start in range(0, len(book), 512):
        away = torch.cdist(
            book[start : start + 512], book, compute_mode="donot_use_mm_for_euclid_dist"
        )
        away[torch.arange(len(away)), torch.arange(start, start + len(away))] = torch.inf
        nearest.append(away.amin(1))
    nearest_distances = torch.cat(nearest).numpy() / (std or 1.0)
    covariance = torch.cov(book.T, correction=0).reshape(book.shape[1], -1)
    ratio = float(torch.trace(covariance) ** 2 / covariance.square().sum().clamp_min(1e-300))
    return CodebookDistances(
        minimum=float(nearest_distances.min()),
        median=float(np.median(nearest_distances)),
        expected=float(np.sqrt(2 * book.shape[1])),
        duplicates=int((nearest_distances < 1e-6).sum()),
        participation_ratio=ratio,
        feature_std=std,
    )


# Noise on the channel from a token to its output: maximum-likelihood decoding, and its bound.


@dataclass(frozen=True)
class NoisyDecoding:
    """The share of tokens decoded correctly from `width` features through Gaussian noise."""

    noise: float  # standard deviation, in standard deviations of a feature
    width: int
    accuracy: float
    accuracy_interval: Interval  # 95 %, over tokens and noises drawn (Wilson), the features fixed
    standard_error: float
    # the most that these features can carry: `gaussian_bits` of their covariance, at most log2 V
    bits: float
    highest: float  # the accuracy that no decoder of these features exceeds (Fano)


def noise_accuracy(
    book: Float[Tensor, "V w"],
    *,
    noises: Sequence[float] = (0.25, 0.5, 1.0, 2.0),
    widths: Sequence[int] | None = None,
    trials: int = 400,
    seed: int = 0,
) -> list[NoisyDecoding]:
    """The share of tokens decoded correctly from w random features of a codebook with Gaussian
    noise.

    The decoder knows the codebook; under equal Gaussian noise the likeliest token is the nearest.
    Noise has the same power in every feature: `noises` are standard deviations in units of the mean
    standard deviation of the features. `widths` are by default powers of two. `trials` tokens are
    drawn for each cell, each with its own noise; the standard error is about ½/√trials.
    """
    generator = torch.Generator().manual_seed(seed)
    vocabulary, size = book.shape
    std = float((book - book.mean(0)).std(0, unbiased=False).mean())
    rows = []
    for width in widths or sorted({min(2**k, size) for k in range(size.bit_length() + 1)}):
        code = book[:, torch.randperm(size, generator=generator)[:width]]
        variances = torch.linalg.eigvalsh(
            torch.cov(code.double().T, correction=0).reshape(width, width)
        )
        for noise in noises:
            sent = torch.randint(vocabulary, (trials,), generator=generator)
            received = code[sent] + noise * std * torch.randn(trials, width, generator=generator)
            norms = code.square().sum(1)
            decoded = torch.cat(
                [(norms - 2 * part @ code.T).argmin(1) for part in received.split(1024)]
            )
            hits = int((decoded == sent).sum())
            share, (least, most) = hits / trials, wilson(hits, trials)
            error = float(np.sqrt(max(share * (1 - share), 1 / trials) / trials))
            bits = min(
                gaussian_bits(variances.numpy(), noise * (std or 1.0)), float(np.log2(vocabulary))
            )
            rows.append(
                NoisyDecoding(
                    noise, width, share, (least, most), error, bits, fano_accuracy(bits, vocabulary)
                )
            )
    return rows


WANTED = 0.95  # the accuracy that `ChannelBound.width` asks for


@dataclass(frozen=True)
class ChannelBound:
    """What no decoder can exceed at a level of noise, every token being equally frequent."""

    noise: float  # standard deviation, in mean standard deviations of a feature
    bits: float  # `gaussian_bits` of these outputs, at most log2 V: what *they* can carry
    # with fewer features, whichever they are, no decoder finds 95 % of the tokens; None: with none
    width: int | None


def channel_bound(book: Float[Tensor, "V w"], noise: float) -> ChannelBound:
    """The bounds of a codebook at a level of noise, in the mean standard deviations of its
    features.

    The eigenvalues of any w features' covariance are at most the w largest of all features'
    (interlacing), so `width` holds for every choice of features.

    >>> torch.manual_seed(0)                                                    # doctest: +ELLIPSIS
    <torch._C.Generator object at ...>
    >>> bound = channel_bound(torch.randn(256, 64), 1.0)
    >>> bound.width, 7.9 < bound.bits <= 8.0
    (10, True)
    """
    centred = (book - book.mean(0)).double()
    spread = float(centred.std(0, unbiased=False).mean())
    variances = torch.linalg.eigvalsh(centred.T @ centred / len(book)).flip(0).clamp_min(0).numpy()
    cumulative_bits = np.cumsum(0.5 * np.log2(1 + variances / (spread or 1.0) ** 2 / noise**2))
    enough = np.flatnonzero(cumulative_bits >= fano_bits(WANTED, len(book)))
    bits = min(float(np.log2(len(book))), float(cumulative_bits[-1]))
    return ChannelBound(noise, bits, int(enough[0]) + 1 if len(enough) else None)
