"""Slow, obviously right versions of the first measures: all pairs, all rows at once, float64 numpy,
no shared code.
"""

from functools import lru_cache

import numpy as np


def average_cosine(x):
    """Mean over all ordered pairs of distinct rows, pair by pair in blocks."""
    x = np.asarray(x, dtype=np.float64)
    u = x / np.linalg.norm(x, axis=1, keepdims=True)
    n = len(u)
    total = 0.0
    for start in range(0, n, 1000):
        cosines = u[start : start + 1000] @ u.T
        rows = np.arange(len(cosines))
        cosines[rows, start + rows] = 0.0
        total += cosines.sum()
    return total / (n * (n - 1))


def mean_norm(x):
    return np.linalg.norm(np.asarray(x, dtype=np.float64), axis=1).mean()


def mean_vector_norm(x):
    return np.linalg.norm(np.asarray(x, dtype=np.float64).mean(axis=0))


def singular_values(x):
    """Return the singular values of the uncentred data matrix over √n, padded with zeros
    to the width.
    """
    x = np.asarray(x, dtype=np.float64)
    return _decomposed(x.tobytes(), x.shape).copy()


@lru_cache(maxsize=2)  # several measures of the same rows ask one after another
def _decomposed(rows, shape):
    x = np.frombuffer(rows).reshape(shape)
    values = np.linalg.svd(x, compute_uv=False) / np.sqrt(len(x))
    return np.pad(values, (0, x.shape[1] - len(values)))


def _shares(x):
    energies = singular_values(x) ** 2
    return energies / energies.sum()


def top_direction_share(x):
    return _shares(x)[0]


def effective_rank(x):
    p = _shares(x)
    p = p[p > 0]
    return np.exp(-np.sum(p * np.log(p)))


def participation_ratio(x):
    variances = np.linalg.eigvalsh(np.cov(np.asarray(x, dtype=np.float64), rowvar=False, bias=True))
    return variances.sum() ** 2 / (variances**2).sum()


def isoscore(x):
    """The published steps (Rudman et al. 2022), one by one."""
    x = np.asarray(x, dtype=np.float64)
    d = x.shape[1]
    variances = np.linalg.eigvalsh(np.cov(x, rowvar=False, bias=True))
    normalised = np.sqrt(d) * variances / np.linalg.norm(variances)
    defect = np.linalg.norm(normalised - 1) / np.sqrt(2 * (d - np.sqrt(d)))
    dimensions = (d - defect**2 * (d - np.sqrt(d))) ** 2 / d
    return (dimensions - 1) / (d - 1)


def drift(x):
    x = np.asarray(x, dtype=np.float64)
    return np.linalg.norm(x.mean(axis=0)) / np.linalg.norm(x, axis=1).mean()


def _amplitudes(x):
    values = singular_values(x)
    return values / values.sum()


def rankme(x):
    p = _amplitudes(x)
    p = p[p > 0]
    return np.exp(-np.sum(p * np.log(p)))


def centred_effective_rank(x):
    x = np.asarray(x, dtype=np.float64)
    return effective_rank(x - x.mean(axis=0))


def uncentred_participation_ratio(x):
    energies = np.linalg.svd(np.asarray(x, dtype=np.float64), compute_uv=False) ** 2
    return energies.sum() ** 2 / (energies**2).sum()


SCALARS = {
    function.__name__: function
    for function in (
        average_cosine,
        mean_norm,
        mean_vector_norm,
        top_direction_share,
        effective_rank,
        participation_ratio,
        isoscore,
        drift,
        rankme,
        centred_effective_rank,
        uncentred_participation_ratio,
    )
}
