"""Bits and right answers: what so much information about one of many names allows, and what it
takes.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike


def entropy_bits(shares: ArrayLike) -> float:
    """H = −Σ pᵢ log2 pᵢ of weights that add up to whatever they do; a weight of 0 counts nothing.

    >>> entropy_bits([0.5, 0.25, 0.25]), entropy_bits([1.0, 0.0])
    (1.5, 0.0)
    """
    p = np.asarray(shares, dtype=float)
    p = p[p > 0]
    return float(-(p * np.log2(p)).sum()) + 0.0


def gaussian_bits(variances: ArrayLike, noise: float) -> float:
    """Upper bound on I(token; output + noise) in bits: Σ ½ log2(1 + σᵢ²/N), N = noise².

    `variances`: σᵢ², the eigenvalues of the outputs' covariance under the tokens' prior, in any
    unit; `noise`: the standard deviation of the Gaussian noise in every coordinate, in the same
    unit.

    Of all laws with this covariance the Gaussian has the largest entropy, so this holds for every
    codebook and prior.

    >>> round(gaussian_bits([3.0, 15.0], 1.0), 2), gaussian_bits([3.0, 0.0], 1.0)
    (3.0, 1.0)
    """
    return float(
        0.5 * np.log2(1 + np.clip(np.asarray(variances, dtype=float), 0, None) / noise**2).sum()
    )


def fano_bits(accuracy: float, vocabulary: int, entropy: float | None = None) -> float:
    """The fewest bits about a token with which it can be found with this accuracy, by Fano's
    inequality.

    H − h(e) − e·log2(V − 1), e = 1 − accuracy, and at least 0; `entropy` H of the tokens' prior in
    bits, log2 V where all are equally frequent.

    >>> fano_bits(1.0, 4096), round(fano_bits(0.95, 4096), 2)
    (12.0, 11.11)
    """
    error = 1 - accuracy
    given = float(np.log2(vocabulary)) if entropy is None else entropy
    return max(
        0.0,
        given - entropy_bits([error, accuracy]) - error * float(np.log2(max(vocabulary - 1, 1))),
    )


def fano_accuracy(bits: float, vocabulary: int, entropy: float | None = None) -> float:
    """The highest accuracy that so many bits about a token allow: the inverse of `fano_bits`; in
    [1/V, 1].

    >>> fano_accuracy(12.0, 4096), round(fano_accuracy(6.0, 4096), 3)
    (1.0, 0.582)
    """
    return _highest(lambda accuracy: fano_bits(accuracy, vocabulary, entropy), 1 / vocabulary, bits)


def divergence_accuracy(bits: float, likeliest: float) -> float:
    """The highest accuracy that so many bits allow where the likeliest name has a known
    probability; in [likeliest, 1].

    I = D(P_XY ‖ P_X P_Y) is at least the divergence of any event's two probabilities (data
    processing). For the event that the guess is right these are the accuracy a and, with nothing
    seen, at most q = `likeliest`: so d(a ‖ q) ≤ I, where a ≥ q. For equally likely names this is
    Fano's inequality itself; for a prior with one likely name it is tighter.

    >>> round(divergence_accuracy(6.0, 1 / 4096), 3) == round(fano_accuracy(6.0, 4096), 3)
    True
    >>> round(divergence_accuracy(0.1, 0.7), 3), divergence_accuracy(9.0, 0.7)
    (0.859, 1.0)
    """

    def divergence(a: float) -> float:
        rest = 0.0 if a == 1 else (1 - a) * np.log2((1 - a) / (1 - likeliest))
        return float(a * np.log2(a / likeliest) + rest)

    return 1.0 if likeliest >= 1 else _highest(divergence, likeliest, bits)


def _highest(needed: Callable[[float], float], low: float, bits: float) -> float:
    """The highest accuracy in [low, 1] that needs no more than so many bits; `needed` rises with
    the accuracy.
    """
    high = 1.0
    if needed(high) <= bits:
        return high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if needed(middle) <= bits else (low, middle)
    return high
