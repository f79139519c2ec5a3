"""Noise and rounding on the channel from a token to its output: maximum-likelihood decoding beside what is possible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from headscan.measures.interval import wilson
from headscan.run import Interval
from headscan.statistics.information import fano_accuracy, fano_bits, gaussian_bits


@dataclass(frozen=True)
class NoisyDecoding:
    """The share of tokens decoded rightly from `width` features through Gaussian noise.

    `noise` is its standard deviation in those of a feature; `bits` the most that these very features can tell of a token
    (`gaussian_bits` of their covariance, at most log2 V), `highest` the accuracy that no decoder of them exceeds (Fano).
    `accuracy_interval`: 95 %, over tokens and noises drawn (Wilson), the features as they are.
    """

    noise: float
    width: int
    accuracy: float
    accuracy_interval: Interval
    standard_error: float
    bits: float
    highest: float


@dataclass(frozen=True)
class RoundedDecoding:
    """The share of tokens decoded rightly from `width` features of `bits` bits each: `sent` bits, where log2 V are `needed`."""

    bits: int
    width: int
    accuracy: float
    sent: int
    needed: float


def noise_accuracy(
    book: Float[Tensor, "V w"], *, noises: Sequence[float] = (0.25, 0.5, 1.0, 2.0),
    widths: Sequence[int] | None = None, trials: int = 400, seed: int = 0,
) -> list[NoisyDecoding]:  # fmt: skip
    """The share of tokens decoded rightly from w random features with Gaussian noise.

    The decoder knows the codebook; under equal Gaussian noise the likeliest token is the nearest. Noise has the same
    power in every feature: `noise` times the mean standard deviation of the features, whatever their own spread.

    Args:
        book: from `codebook`.
        noises: standard deviations, in units of the mean standard deviation of the features.
        widths: numbers of features; by default powers of two.
        trials: tokens drawn for each cell, each with its own noise; the standard error is about ½/√trials.
        seed: of features, tokens and noise.
    """
    generator = torch.Generator().manual_seed(seed)
    vocabulary, size = book.shape
    std = float((book - book.mean(0)).std(0, unbiased=False).mean())
    found = []
    for width in widths or _powers(size):
        features = torch.randperm(size, generator=generator)[:width]
        code = book[:, features]
        variances = torch.linalg.eigvalsh(torch.cov(code.double().T, correction=0).reshape(width, width))
        for noise in noises:
            sent = torch.randint(vocabulary, (trials,), generator=generator)
            heard = code[sent] + noise * std * torch.randn(trials, width, generator=generator)
            hits = int((_nearest(heard, code) == sent).sum())
            right, (least, most) = hits / trials, wilson(hits, trials)
            error = float(np.sqrt(max(right * (1 - right), 1 / trials) / trials))
            bits = min(gaussian_bits(variances.numpy(), noise * (std or 1.0)), float(np.log2(vocabulary)))
            found.append(
                NoisyDecoding(noise, width, right, (least, most), error, bits, fano_accuracy(bits, vocabulary))
            )
    return found


def quantised_accuracy(
    book: Float[Tensor, "V w"],
    *,
    bits: Sequence[int] = (1, 2, 3, 4, 8),
    widths: Sequence[int] | None = None,
    seed: int = 0,
) -> list[RoundedDecoding]:
    """The share of tokens decoded rightly from w random features rounded to so many bits each.

    Each feature is rounded to 2^bits equal steps between its smallest and largest value over the vocabulary; a rounded
    output is decoded to the nearest of the *exact* codebook. `needed` is the fewest bits a token takes: log2 V.
    """
    generator = torch.Generator().manual_seed(seed)
    vocabulary, size = book.shape
    found = []
    for width in widths or _powers(size):
        code = book[:, torch.randperm(size, generator=generator)[:width]]
        low, high = code.amin(0), code.amax(0)
        for bit in bits:
            step = ((high - low) / (2**bit - 1)).clamp_min(1e-30)
            heard = ((code - low) / step).round() * step + low
            right = float((_nearest(heard, code) == torch.arange(vocabulary)).float().mean())
            found.append(RoundedDecoding(bit, width, right, bit * width, float(np.log2(vocabulary))))
    return found


def _nearest(heard: Tensor, code: Tensor) -> Tensor:
    norms = code.square().sum(1)
    return torch.cat([(norms - 2 * part @ code.T).argmin(1) for part in heard.split(1024)])


def _powers(size: int) -> list[int]:
    return sorted({min(2**k, size) for k in range(0, size.bit_length() + 1)})


# ---- How many bits, and how many right answers, a noisy channel from a token to its output can carry at most.

WANTED = 0.95


@dataclass(frozen=True)
class ChannelBound:
    """What no decoder can exceed at a level of noise, every token being equally frequent.

    Attributes:
        noise: its standard deviation, in the mean standard deviations of a feature.
        bits: `gaussian_bits` of these outputs, at most log2 V: what *they* can tell of their token.
        width: with fewer features, whichever they are, no decoder finds 95 % of the tokens; None: not even with all.
        reallocated_bits: what *any* outputs of the same total power could tell over as many features (`water_filling`).
        reallocated_width: the fewest features of such outputs for 95 %; None: not even all.
    """

    noise: float
    bits: float
    width: int | None
    reallocated_bits: float
    reallocated_width: int | None


def water_filling(power: float, noises: ArrayLike) -> tuple[float, NDArray[np.float64]]:
    """The capacity in bits of parallel Gaussian channels with a total power, and the power of each.

    Args:
        power: Σσᵢ², to be shared out freely.
        noises: the noise's variance of each channel [w], above 0.

    Power fills the channels up to one level, the quietest first (Cover and Thomas 2006, 9.4). It answers another question
    than `gaussian_bits`: not what the outputs tell as they are, but what outputs of the same power could.

    >>> bits, shares = water_filling(3.0, [1.0, 2.0, 9.0])
    >>> shares.tolist(), round(bits, 3)
    ([2.0, 1.0, 0.0], 1.085)
    """
    noise = np.asarray(noises, dtype=float)
    order = np.sort(noise)
    levels = (power + np.cumsum(order)) / np.arange(1, len(order) + 1)
    level = levels[np.flatnonzero(levels > order)[-1]] if power > 0 else order[0]
    shares = np.clip(level - noise, 0, None)
    return float(0.5 * np.log2(1 + shares / noise).sum()), shares


def channel_bound(book: Float[Tensor, "V w"], noise: float) -> ChannelBound:
    """The bounds of a code book at a level of noise, in the mean standard deviations of its features.

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
    variances = (
        torch.linalg.eigvalsh(centred.T @ centred / len(book)).flip(0).clamp_min(0).numpy() / (spread or 1.0) ** 2
    )
    needed, most = fano_bits(WANTED, len(book)), float(np.log2(len(book)))
    carried = np.cumsum(0.5 * np.log2(1 + variances / noise**2))
    anew = [water_filling(float(variances.sum()), np.full(w, noise**2))[0] for w in range(1, len(variances) + 1)]
    return ChannelBound(
        noise,
        min(most, float(carried[-1])),
        _first(carried, needed),
        min(most, anew[-1]),
        _first(np.array(anew), needed),
    )


def _first(bits: NDArray[np.float64], needed: float) -> int | None:
    """The first count of features that reaches so many bits."""
    enough = np.flatnonzero(bits >= needed)
    return int(enough[0]) + 1 if len(enough) else None
