"""Codebooks, the outputs of all tokens at one position: their distances, and decoding through
noise.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float32, Int
from torch import Tensor

from headscan.model import Lens
from headscan.model.slicing import Slice, SlicedModel
from headscan.model.slicing.prefix import Prefix
from headscan.run import BadInput, Interval, Progress, no_progress
from headscan.statistics.information import fano_accuracy, fano_bits, gaussian_bits
from headscan.statistics.uncertainty import wilson

DUPLICATE = 1e-6
"""Two outputs at most so far apart, in mean standard deviations, count as one."""

ROWS_AT_ONCE = 512
"""Code words whose distances to all others are computed at once."""

DECODED_AT_ONCE = 1024
"""Noisy outputs that are decoded at once."""

WANTED = 0.95
"""The accuracy that `ChannelBound.width` asks for."""


@dataclass(frozen=True)
class CodebookDistances:
    """The separation of a codebook, in units of the mean standard deviation of its features.

    Attributes:
        minimum: least distance of a token to its nearest other token.
        median: median of these distances.
        expected: √(2 w), about the distance of two tokens in a round cloud of the same spread.
        duplicates: tokens whose output another token shares to 1e-6.
        participation_ratio: of the centred covariance: the number of directions in use.
        feature_std: the unit.
    """

    minimum: float
    median: float
    expected: float
    duplicates: int
    participation_ratio: float
    feature_std: float


def codebook(
    lens: Lens,
    slice_: Slice | str,
    prefix: Sequence[int] = (),
    *,
    tokens: Int[Tensor, " C"] | None = None,
    rows: int = 512,
    progress: Progress = no_progress,
) -> Float32[Tensor, "C w"]:
    """Return the last output of a slice or a site for each token behind a prefix.

    Args:
        tokens: token ids; None: the whole vocabulary.
        rows: tokens of a forward pass.

    Cost: a row of len(prefix) + 1 tokens each; for chosen `tokens` one token where the model has a
        key-value cache.
    """
    named_slice = Slice(sites=(slice_,)) if isinstance(slice_, str) else slice_
    cut = named_slice.but(tokens="-1").on(lens)
    start = torch.tensor(list(prefix), dtype=torch.int64)
    known = None
    if tokens is not None and cut.causal and len(start):
        known = Prefix(cut, start[None])
    candidates = torch.arange(lens.vocabulary_size) if tokens is None else tokens
    code_words: list[Tensor] = []
    for chunk in candidates.split(rows):
        progress("codebook", len(code_words) * rows, len(candidates), "tokens")
        code_words.append(_last_outputs(cut, start, known, chunk).float().cpu())
    return torch.cat(code_words)


@torch.no_grad()
def _last_outputs(
    cut: SlicedModel, start: Int[Tensor, " s"], known: Prefix | None, tokens: Int[Tensor, " B"]
) -> Float[Tensor, "B w"]:
    """Return the output of each token behind the start, from its cached keys where they are."""
    if known is None:
        prompts = torch.cat([start.expand(len(tokens), -1), tokens[:, None]], 1)
        return cut.run(prompts)[:, -1]
    device = cut.lens.device
    return known.evaluate(torch.zeros_like(tokens, device=device), tokens.to(device))


def distances(book: Float[Tensor, "V w"]) -> CodebookDistances:
    """Return the separation of a codebook.

    Raises:
        BadInput: for fewer than two tokens.
    """
    if len(book) < 2:
        raise BadInput("A codebook has at least two tokens.")
    book = book.double()
    nearest = []
    for start in range(0, len(book), ROWS_AT_ONCE):
        rows = book[start : start + ROWS_AT_ONCE]
        row_distances = torch.cdist(rows, book, compute_mode="donot_use_mm_for_euclid_dist")
        own = torch.arange(len(rows))
        row_distances[own, start + own] = torch.inf
        nearest.append(row_distances.amin(1))
    std = _feature_std(book)
    nearest_distances = torch.cat(nearest).numpy() / (std or 1.0)
    covariance = _covariance(book)
    ratio = torch.trace(covariance) ** 2 / covariance.square().sum().clamp_min(1e-300)
    return CodebookDistances(
        minimum=float(nearest_distances.min()),
        median=float(np.median(nearest_distances)),
        expected=float(np.sqrt(2 * book.shape[1])),
        duplicates=int((nearest_distances < DUPLICATE).sum()),
        participation_ratio=float(ratio),
        feature_std=std,
    )


def _feature_std(book: Float[Tensor, "V w"]) -> float:
    """Return the mean standard deviation of the features."""
    return float((book - book.mean(0)).std(0, unbiased=False).mean())


def _covariance(book: Float[Tensor, "V w"]) -> Float[Tensor, "w w"]:
    """Return the covariance of the features, a matrix also of a single one."""
    width = book.shape[1]
    return torch.cov(book.T, correction=0).reshape(width, width)


@dataclass(frozen=True)
class NoisyDecoding:
    """The share of tokens decoded correctly from `width` features through Gaussian noise.

    Attributes:
        noise: its standard deviation, in standard deviations of a feature.
        accuracy_interval: 95 %, over the tokens and noises drawn (Wilson), the features fixed.
        bits: the most that these features can carry: `gaussian_bits` of their covariance, at most
            log2 V.
        highest: the accuracy that no decoder of these features exceeds (Fano).
    """

    noise: float
    width: int
    accuracy: float
    accuracy_interval: Interval
    standard_error: float
    bits: float
    highest: float


def noise_accuracy(
    book: Float[Tensor, "V w"],
    *,
    noises: Sequence[float] = (0.25, 0.5, 1.0, 2.0),
    widths: Sequence[int] | None = None,
    trials: int = 400,
    seed: int = 0,
) -> list[NoisyDecoding]:
    """Return the share of tokens decoded from random features of a codebook with Gaussian noise.

    The decoder knows the codebook; under equal Gaussian noise the likeliest token is the nearest.
    Noise has the same power in every feature.

    Args:
        noises: standard deviations, in units of the mean standard deviation of the features.
        widths: numbers of features; by default powers of two.
        trials: tokens drawn for each width and noise, each with its own noise; the standard error
            is about ½/√trials.
    """
    generator = torch.Generator().manual_seed(seed)
    vocabulary, size = book.shape
    std = _feature_std(book)
    if widths is None:
        widths = sorted({min(2**power, size) for power in range(size.bit_length() + 1)})
    rows = []
    for width in widths:
        code = book[:, torch.randperm(size, generator=generator)[:width]]
        variances = torch.linalg.eigvalsh(_covariance(code.double())).numpy()
        for noise in noises:
            sent = torch.randint(vocabulary, (trials,), generator=generator)
            added = noise * std * torch.randn(trials, width, generator=generator)
            hits = int((_decoded(code, code[sent] + added) == sent).sum())
            share = hits / trials
            least, most = wilson(hits, trials)
            variance = max(share * (1 - share), 1 / trials)
            bits = gaussian_bits(variances, noise * (std or 1.0))
            bits = min(bits, float(np.log2(vocabulary)))
            rows.append(
                NoisyDecoding(
                    noise=noise,
                    width=width,
                    accuracy=share,
                    accuracy_interval=(least, most),
                    standard_error=float(np.sqrt(variance / trials)),
                    bits=bits,
                    highest=fano_accuracy(bits, vocabulary),
                )
            )
    return rows


def _decoded(
    code: Float[Tensor, "V w"], received: Float[Tensor, "trials w"]
) -> Int[Tensor, " trials"]:
    """Return the token whose code word is nearest to each received output."""
    norms = code.square().sum(1)
    nearest = []
    for part in received.split(DECODED_AT_ONCE):
        nearest.append((norms - 2 * part @ code.T).argmin(1))
    return torch.cat(nearest)


@dataclass(frozen=True)
class ChannelBound:
    """The bounds of any decoder at a level of noise, every token being equally frequent.

    Attributes:
        noise: its standard deviation, in mean standard deviations of a feature.
        bits: `gaussian_bits` of these outputs, at most log2 V: what *they* can carry.
        width: with fewer features, whichever they are, no decoder finds 95 % of the tokens; None:
            with no number of features.
    """

    noise: float
    bits: float
    width: int | None


def channel_bound(book: Float[Tensor, "V w"], noise: float) -> ChannelBound:
    """Return the bounds of a codebook at a level of noise.

    The eigenvalues of any w features' covariance are at most the w largest of all features'
    (interlacing), so `width` holds for every choice of features.

    Args:
        noise: its standard deviation, in mean standard deviations of the features.

    >>> torch.manual_seed(0)                                                    # doctest: +ELLIPSIS
    <torch._C.Generator object at ...>
    >>> bound = channel_bound(torch.randn(256, 64), 1.0)
    >>> bound.width, 7.9 < bound.bits <= 8.0
    (10, True)
    """
    centred = (book - book.mean(0)).double()
    spread = float(centred.std(0, unbiased=False).mean()) or 1.0
    eigenvalues = torch.linalg.eigvalsh(centred.T @ centred / len(book))
    variances = eigenvalues.flip(0).clamp_min(0).numpy()
    cumulative_bits = np.cumsum(0.5 * np.log2(1 + variances / spread**2 / noise**2))
    bits = min(float(np.log2(len(book))), float(cumulative_bits[-1]))
    sufficient = np.flatnonzero(cumulative_bits >= fano_bits(WANTED, len(book)))
    width = int(sufficient[0]) + 1 if len(sufficient) else None
    return ChannelBound(noise, bits, width)
