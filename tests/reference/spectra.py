"""Spectra of weights, slowly: singular values, and the power law of a tail by trying each value as
its beginning.
"""

import numpy as np


def energies(matrix: np.ndarray) -> np.ndarray:
    return np.sort(np.linalg.svd(matrix.astype(np.float64), compute_uv=False) ** 2)


def power_law(values: np.ndarray) -> tuple[float, float, int, float]:
    """Exponent, beginning, number of values, distance: formulas 3.1 and 3.9 of Clauset, Shalizi and
    Newman (2009).
    """
    best = (0.0, 0.0, 0, np.inf)
    for least in sorted(values)[:-1]:
        tail = sorted(value for value in values if value >= least)
        exponent = 1 + len(tail) / sum(np.log(value / least) for value in tail)
        law = [1 - (value / least) ** (1 - exponent) for value in tail]
        distance = max(abs(i / len(tail) - share) for i, share in enumerate(law))
        if distance < best[3]:
            best = (exponent, least, len(tail), distance)
    return best


def gaussian_energies(long: int, short: int, draw: np.random.Generator) -> np.ndarray:
    return energies(draw.standard_normal((long, short)))
