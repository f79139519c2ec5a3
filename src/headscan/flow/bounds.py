"""How many bits, and how many right answers, a noisy channel from a token to its output can carry at most."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

__all__ = ["ChannelBound", "channel_bound", "fano_accuracy", "fano_bits", "gaussian_bits", "water_filling"]

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


def gaussian_bits(variances: ArrayLike, noise: float) -> float:
    """Upper bound on I(token; output + noise) in bits: Σ ½ log2(1 + σᵢ²/N), N = noise².

    Args:
        variances: σᵢ², the eigenvalues of the outputs' covariance under the tokens' prior, in any unit.
        noise: standard deviation of the Gaussian noise in every coordinate, in the same unit.

    Of all laws with this covariance the Gaussian has the largest entropy, so this holds for every code book and prior.

    >>> round(gaussian_bits([3.0, 15.0], 1.0), 2), gaussian_bits([3.0, 0.0], 1.0)
    (3.0, 1.0)
    """
    return float(0.5 * np.log2(1 + np.clip(np.asarray(variances, dtype=float), 0, None) / noise**2).sum())


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


def fano_bits(accuracy: float, vocabulary: int, entropy: float | None = None) -> float:
    """The fewest bits about a token with which it can be found with this accuracy, by Fano's inequality.

    H − h(e) − e·log2(V − 1), e = 1 − accuracy, and at least 0; `entropy` H of the tokens' prior in bits, log2 V where all
    are equally frequent.

    >>> fano_bits(1.0, 4096), round(fano_bits(0.95, 4096), 2)
    (12.0, 11.11)
    """
    error = 1 - accuracy
    spread = -sum(p * np.log2(p) for p in (error, accuracy) if p > 0)
    given = float(np.log2(vocabulary)) if entropy is None else entropy
    return max(0.0, float(given - spread - error * np.log2(max(vocabulary - 1, 1))))


def fano_accuracy(bits: float, vocabulary: int, entropy: float | None = None) -> float:
    """The highest accuracy that so many bits about a token allow: the inverse of `fano_bits`; in [1/V, 1].

    >>> fano_accuracy(12.0, 4096), round(fano_accuracy(6.0, 4096), 3)
    (1.0, 0.582)
    """
    low, high = 1 / vocabulary, 1.0
    if fano_bits(high, vocabulary, entropy) <= bits:
        return 1.0
    for _ in range(60):  # fano_bits rises with the accuracy above 1/V
        middle = (low + high) / 2
        low, high = (middle, high) if fano_bits(middle, vocabulary, entropy) <= bits else (low, middle)
    return high


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
