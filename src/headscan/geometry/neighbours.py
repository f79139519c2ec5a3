"""Distances to the nearest distinct neighbours, in blocks: what every estimate of intrinsic dimension rests on."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

__all__ = ["distinct_rows", "neighbour_distances"]


def distinct_rows(rows) -> np.ndarray:
    """The rows with repeats left out [m, d] float64, in the order of their first occurrence.

    Token types repeat at the embedding, where all occurrences are one vector: their nearest neighbour is at distance
    zero, and a ratio of neighbour distances is then infinite or undefined.

    >>> distinct_rows([[1, 2], [0, 0], [1, 2]]).tolist()
    [[1.0, 2.0], [0.0, 0.0]]
    """
    rows = np.ascontiguousarray(np.asarray(rows, dtype=np.float64)) + 0.0  # −0 and 0 are one number
    keys = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel()
    _, first = np.unique(keys, return_index=True)
    return rows[np.sort(first)]


def neighbour_distances(rows, k: int, *, block_bytes: int = 2**26) -> Tensor:
    """Distances of each row to its k nearest other rows, ascending [n, k] float64; k < n.

    In blocks of the n x n matrix that take at most `block_bytes`. ‖x − y‖² = ‖x‖² + ‖y‖² − 2x·y loses half of the digits
    where distances are small against the norms; so the rows are centred first, and the k nearest by that formula (and
    as many again) are measured anew by subtraction. Cost O(n²d), memory O(block + nkd/blocks).

    >>> neighbour_distances([[0.0], [1.0], [3.0]], 2).tolist()
    [[1.0, 3.0], [1.0, 2.0], [2.0, 3.0]]
    """
    x = torch.as_tensor(np.asarray(rows, dtype=np.float64)) if not isinstance(rows, Tensor) else rows.double()
    x = x - x.mean(0)
    n, d = x.shape
    if not 1 <= k < n:
        raise ValueError(f"{k} neighbours of {n} rows were asked for")
    squares = x.square().sum(1)
    candidates = min(n - 1, 2 * k + 2)
    block = max(1, min(block_bytes // (8 * n), block_bytes // (8 * candidates * d)))
    found = torch.empty(n, k, dtype=torch.float64)
    for start in range(0, n, block):
        part = x[start : start + block]
        distances = torch.addmm(squares[None, :], part, x.T, alpha=-2)
        distances[torch.arange(len(part)), start + torch.arange(len(part))] = torch.inf
        near = distances.topk(candidates, largest=False).indices
        exact = torch.linalg.vector_norm(x[near] - part[:, None], dim=-1)
        found[start : start + block] = exact.sort(dim=1).values[:, :k]
    return found
