"""Similarities of two sets of rows, slow and obviously right: matrices of tokens by tokens,
explicit regressions.
"""

import numpy as np
from scipy.linalg import orthogonal_procrustes
from scipy.stats import rankdata


def hsic(k: np.ndarray, m: np.ndarray) -> float:
    """Song et al. 2012, equation 5, on Gram matrices with zeroed diagonals."""
    n = len(k)
    k = k - np.diag(np.diag(k))
    m = m - np.diag(np.diag(m))
    product_of_sums = k.sum() * m.sum()
    first = np.trace(k @ m) + product_of_sums / ((n - 1) * (n - 2))
    return (first - 2 / (n - 2) * (k.sum(0) @ m.sum(1))) / (n * (n - 3))


def cka(x: np.ndarray, y: np.ndarray) -> float:
    k = x @ x.T
    m = y @ y.T
    return hsic(k, m) / np.sqrt(hsic(k, k) * hsic(m, m))


def procrustes(x: np.ndarray, y: np.ndarray) -> float:
    """1 − d²/2, d the distance of the unit clouds after the best rotation."""
    x, y = (rows - rows.mean(0) for rows in (x, y))
    width = max(x.shape[1], y.shape[1])
    x = np.pad(x, ((0, 0), (0, width - x.shape[1]))) / np.linalg.norm(x)
    y = np.pad(y, ((0, 0), (0, width - y.shape[1]))) / np.linalg.norm(y)
    turn, _ = orthogonal_procrustes(x, y)
    return 1 - np.linalg.norm(x @ turn - y) ** 2 / 2


def _correlations(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Canonical correlations and the first side's canonical variates [n, k]."""
    x, y = (np.linalg.qr(rows - rows.mean(0))[0] for rows in (x, y))
    left, values, _ = np.linalg.svd(x.T @ y, full_matrices=False)
    return values, x @ left


def svcca(x: np.ndarray, y: np.ndarray) -> float:
    components = []
    for rows in (x, y):
        u, s, _ = np.linalg.svd(rows - rows.mean(0), full_matrices=False)
        count = int(np.searchsorted(np.cumsum(s**2) / np.sum(s**2), 0.99)) + 1
        components.append(u[:, :count] * s[:count])
    return float(_correlations(*components)[0].mean())


def linear(x: np.ndarray, y: np.ndarray) -> float:
    x = x - x.mean(0)
    y = y - y.mean(0)
    fit = x @ np.linalg.lstsq(x, y, rcond=None)[0]
    n, p = x.shape
    unexplained = 1 - (fit**2).sum() / (y**2).sum()
    return 1 - unexplained * (n - 1) / (n - p - 1)


def rsa(x: np.ndarray, y: np.ndarray) -> float:
    ranks = []
    for rows in (x, y):
        about = rows - rows.mean(0)
        about /= np.linalg.norm(about, axis=1, keepdims=True)
        ranks.append(rankdata((1 - about @ about.T)[np.triu_indices(len(rows), 1)]))
    return float(np.corrcoef(*ranks)[0, 1])


def mutual_knn(x: np.ndarray, y: np.ndarray, k: int = 10) -> float:
    shared = 0
    lists = []
    for rows in (x, y):
        unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        cosines = unit @ unit.T
        np.fill_diagonal(cosines, -np.inf)
        lists.append([set(np.argsort(row)[::-1][:k]) for row in cosines])
    for mine, neighbours in zip(*lists, strict=True):
        shared += len(mine & neighbours)
    return shared / (k * len(x))
