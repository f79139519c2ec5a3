"""Bits and accuracy: how accurately a name can be guessed with so much information, and how much
information an accuracy needs.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike


def entropy_bits(shares: ArrayLike) -> float:
    """Return H = −Σ pᵢ log2 pᵢ; a weight of 0 counts nothing.

    The weights need not add up to 1.

    >>> entropy_bits([0.5, 0.25, 0.25]), entropy_bits([1.0, 0.0])
    (1.5, 0.0)
    """
    p = np.asarray(shares, dtype=float)
    p = p[p > 0]
    return float(-(p * np.log2(p)).sum()) + 0.0


def gaussian_bits(variances: ArrayLike, noise: float) -> float:
    """Return the upper bound Σ ½ log2(1 + σᵢ²/N), N = noise², of I(token; output + noise) in bits.

    `variances`: σᵢ², the eigenvalues of the outputs' covariance under the tokens' prior, in any
    unit; `noise`: the standard deviation of the Gaussian noise in every coordinate, in the same
    unit.

    Of all laws with this covariance the Gaussian has the largest entropy, so this holds for every
    codebook and prior.

    >>> round(gaussian_bits([3.0, 15.0], 1.0), 2), gaussian_bits([3.0, 0.0], 1.0)
    (3.0, 1.0)
    """
    positive = np.clip(np.asarray(variances, dtype=float), 0, None)
    return float(0.5 * np.log2(1 + positive / noise**2).sum())


def fano_bits(accuracy: float, vocabulary: int, entropy: float | None = None) -> float:
    """Return the fewest bits about a token that allow this accuracy, by Fano's inequality.

    H − h(e) − e·log2(V − 1), e = 1 − accuracy, and at least 0; `entropy` is H of the tokens' prior
    in bits, by default log2 V of equally frequent tokens.

    >>> fano_bits(1.0, 4096), round(fano_bits(0.95, 4096), 2)
    (12.0, 11.11)
    """
    error = 1 - accuracy
    prior = float(np.log2(vocabulary)) if entropy is None else entropy
    wrong_tokens = float(np.log2(max(vocabulary - 1, 1)))
    return max(0.0, prior - entropy_bits([error, accuracy]) - error * wrong_tokens)


def fano_accuracy(bits: float, vocabulary: int, entropy: float | None = None) -> float:
    """Return the highest accuracy that so many bits about a token allow, in [1/V, 1].

    It is the inverse of `fano_bits`.

    >>> fano_accuracy(12.0, 4096), round(fano_accuracy(6.0, 4096), 3)
    (1.0, 0.582)
    """

    def needed_bits(accuracy: float) -> float:
        return fano_bits(accuracy, vocabulary, entropy)

    return _highest_accuracy(needed_bits, 1 / vocabulary, bits)


def divergence_accuracy(bits: float, likeliest: float) -> float:
    """Return the highest accuracy that so many bits allow where the likeliest name has a known
    probability; in [likeliest, 1].

    I = D(P_XY ‖ P_X P_Y) is at least the divergence of any event's two probabilities (data
    processing). For the event that the guess is right these are the accuracy a and, without
    information, at most q = `likeliest`: so d(a ‖ q) ≤ I, where a ≥ q. For equally likely names
    this is Fano's inequality itself; for a prior with one likely name it is tighter.

    >>> round(divergence_accuracy(6.0, 1 / 4096), 3) == round(fano_accuracy(6.0, 4096), 3)
    True
    >>> round(divergence_accuracy(0.1, 0.7), 3), divergence_accuracy(9.0, 0.7)
    (0.859, 1.0)
    """
    if likeliest >= 1:
        return 1.0

    def divergence(a: float) -> float:
        wrong = 0.0 if a == 1 else (1 - a) * np.log2((1 - a) / (1 - likeliest))
        return float(a * np.log2(a / likeliest) + wrong)

    return _highest_accuracy(divergence, likeliest, bits)


def _highest_accuracy(needed_bits: Callable[[float], float], low: float, bits: float) -> float:
    """Return the highest accuracy in [low, 1] that needs at most so many bits, by bisection.

    `needed_bits` rises with the accuracy.
    """
    high = 1.0
    if needed_bits(high) <= bits:
        return high
    for _ in range(60):
        middle = (low + high) / 2
        if needed_bits(middle) <= bits:
            low = middle
        else:
            high = middle
    return high
