"""Noise on the channel from a token to its output: maximum-likelihood decoding beside what is possible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headscan.run import Interval
from headscan.statistics.information import fano_accuracy, fano_bits, gaussian_bits
from headscan.statistics.uncertainty import wilson


@dataclass(frozen=True)
class NoisyDecoding:
    """The share of tokens decoded correctly from `width` features through Gaussian noise."""

    noise: float  # standard deviation, in standard deviations of a feature
    width: int
    accuracy: float
    accuracy_interval: Interval  # 95 %, over tokens and noises drawn (Wilson), the features fixed
    standard_error: float
    bits: float  # the most that these features can carry: `gaussian_bits` of their covariance, at most log2 V
    highest: float  # the accuracy that no decoder of these features exceeds (Fano)


def noise_accuracy(
    book: Float[Tensor, "V w"], *, noises: Sequence[float] = (0.25, 0.5, 1.0, 2.0),
    widths: Sequence[int] | None = None, trials: int = 400, seed: int = 0,
) -> list[NoisyDecoding]:  # fmt: skip
    """The share of tokens decoded correctly from w random features of a codebook with Gaussian noise.

    The decoder knows the codebook; under equal Gaussian noise the likeliest token is the nearest. Noise has the same
    power in every feature: `noises` are standard deviations in units of the mean standard deviation of the features.
    `widths` are by default powers of two. `trials` tokens are drawn for each cell, each with its own noise; the standard
    error is about ½/√trials.
    """
    generator = torch.Generator().manual_seed(seed)
    vocabulary, size = book.shape
    std = float((book - book.mean(0)).std(0, unbiased=False).mean())
    rows = []
    for width in widths or _powers(size):
        features = torch.randperm(size, generator=generator)[:width]
        code = book[:, features]
        variances = torch.linalg.eigvalsh(torch.cov(code.double().T, correction=0).reshape(width, width))
        for noise in noises:
            sent = torch.randint(vocabulary, (trials,), generator=generator)
            received = code[sent] + noise * std * torch.randn(trials, width, generator=generator)
            hits = int((_nearest(received, code) == sent).sum())
            share, (least, most) = hits / trials, wilson(hits, trials)
            error = float(np.sqrt(max(share * (1 - share), 1 / trials) / trials))
            bits = min(gaussian_bits(variances.numpy(), noise * (std or 1.0)), float(np.log2(vocabulary)))
            rows.append(NoisyDecoding(noise, width, share, (least, most), error, bits, fano_accuracy(bits, vocabulary)))
    return rows


def _nearest(received: Tensor, code: Tensor) -> Tensor:
    norms = code.square().sum(1)
    return torch.cat([(norms - 2 * part @ code.T).argmin(1) for part in received.split(1024)])


def _powers(size: int) -> list[int]:
    return sorted({min(2**k, size) for k in range(0, size.bit_length() + 1)})


WANTED = 0.95  # the accuracy that `ChannelBound.width` asks for


@dataclass(frozen=True)
class ChannelBound:
    """What no decoder can exceed at a level of noise, every token being equally frequent."""

    noise: float  # standard deviation, in mean standard deviations of a feature
    bits: float  # `gaussian_bits` of these outputs, at most log2 V: what *they* can carry
    width: int | None  # with fewer features, whichever they are, no decoder finds 95 % of the tokens; None: with none


def channel_bound(book: Float[Tensor, "V w"], noise: float) -> ChannelBound:
    """The bounds of a codebook at a level of noise, in the mean standard deviations of its features.

    The eigenvalues of any w features' covariance are at most the w largest of all features' (interlacing), so `width` holds
    for every choice of features.

    >>> torch.manual_seed(0)                                                    # doctest: +ELLIPSIS
    <torch._C.Generator object at ...>
    >>> bound = channel_bound(torch.randn(256, 64), 1.0)
    >>> bound.width, 7.9 < bound.bits <= 8.0
    (10, True)
    """
    centred = (book - book.mean(0)).double()
    spread = float(centred.std(0, unbiased=False).mean())
    variances = torch.linalg.eigvalsh(centred.T @ centred / len(book)).flip(0).clamp_min(0).numpy()
    own = np.cumsum(0.5 * np.log2(1 + variances / (spread or 1.0) ** 2 / noise**2))
    enough = np.flatnonzero(own >= fano_bits(WANTED, len(book)))
    bits = min(float(np.log2(len(book))), float(own[-1]))
    return ChannelBound(noise, bits, int(enough[0]) + 1 if len(enough) else None)
