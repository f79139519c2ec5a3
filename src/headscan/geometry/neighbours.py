"""Distances to the nearest distinct neighbours, in blocks: what every estimate of intrinsic dimension rests on."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

__all__ = ["distinct", "distinct_rows", "neighbour_distances", "neighbours"]


def distinct_rows(rows: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """The rows with repeats left out [m, d] float64, in the order of their first occurrence.

    Token types repeat at the embedding, where all occurrences are one vector: their nearest neighbour is at distance
    zero, and a ratio of neighbour distances is then infinite or undefined.

    >>> distinct_rows([[1, 2], [0, 0], [1, 2]]).tolist()
    [[1.0, 2.0], [0.0, 0.0]]
    """
    points: npt.NDArray[np.float64] = np.asarray(rows, dtype=np.float64)[distinct(rows)[0]] + 0.0
    return points


def distinct(rows: npt.ArrayLike) -> tuple[npt.NDArray[np.signedinteger], npt.NDArray[np.signedinteger]]:
    """Where each distinct row occurs first [m], ascending, and which of them each row is [n].

    >>> [found.tolist() for found in distinct([[1, 2], [0, 0], [1, 2]])]
    [[0, 1], [0, 1, 0]]
    """
    rows = np.ascontiguousarray(np.asarray(rows, dtype=np.float64)) + 0.0  # −0 and 0 are one number
    keys = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel()
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order], rank[inverse.ravel()]


def neighbour_distances(rows: npt.ArrayLike, k: int, *, block_bytes: int = 2**26) -> Tensor:
    """The distances of `neighbours` alone.

    >>> neighbour_distances([[0.0], [1.0], [3.0]], 2).tolist()
    [[1.0, 3.0], [1.0, 2.0], [2.0, 3.0]]
    """
    return neighbours(rows, k, block_bytes=block_bytes)[0]


def neighbours(rows: npt.ArrayLike, k: int, *, block_bytes: int = 2**26) -> tuple[Tensor, Tensor]:
    """Distances of each row to its k nearest other rows, ascending [n, k] float64, and which rows those are; k < n.

    In blocks of the n x n matrix that take at most `block_bytes`. ‖x − y‖² = ‖x‖² + ‖y‖² − 2x·y loses digits where
    distances are small against the norms; so the rows are centred first, and where the nearest squared distance is below
    a hundredth of the squared norms, the k nearest by that formula (and as many again) are measured anew by
    subtraction. The rest keep at least twelve digits. Cost O(n²d), memory O(block + nkd/blocks).

    >>> neighbours([[0.0], [1.0], [3.0]], 2)[1].tolist()
    [[1, 2], [0, 2], [1, 0]]
    """
    x = torch.as_tensor(np.asarray(rows, dtype=np.float64)) if not isinstance(rows, Tensor) else rows.double()
    x = x - x.mean(0)
    n, d = x.shape
    if not 1 <= k < n:
        raise ValueError(f"{k} neighbours of {n} rows were asked for")
    squares = x.square().sum(1)
    candidates = min(n - 1, 2 * k + 2)
    block = max(1, min(block_bytes // (8 * n), block_bytes // (8 * candidates * d)))
    found, which = torch.empty(n, k, dtype=torch.float64), torch.empty(n, k, dtype=torch.int64)
    for start in range(0, n, block):
        part = x[start : start + block]
        distances = torch.addmm(squares[None, :], part, x.T, alpha=-2)
        distances[torch.arange(len(part)), start + torch.arange(len(part))] = torch.inf
        values, near = distances.topk(candidates, largest=False)
        own = squares[start : start + block, None]
        values = (values + own).clamp(min=0).sqrt()
        close = values[:, 0].square() < 0.01 * (own[:, 0] + squares[near].amax(1))
        if bool(close.any()):
            exact = torch.linalg.vector_norm(x[near[close]] - part[close, None], dim=-1)
            values[close], order = exact.sort(dim=1)
            near[close] = near[close].gather(1, order)
        found[start : start + block] = values[:, :k]
        which[start : start + block] = near[:, :k]
    return found, which
