"""How many bits, and how many right answers, a noisy channel from a token to its output can carry at most."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from headscan.statistics.information import fano_bits

__all__ = ["ChannelBound", "channel_bound", "water_filling"]

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
