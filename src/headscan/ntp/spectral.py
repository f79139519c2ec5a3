"""Spectral kernels on [u, c] matrices through the Gram of their small side, in float64 torch on any device."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from headscan.ntp.arrays import Floats

__all__ = ["nuclear_norm", "singular_values", "spectral_norm", "thin_svd", "thread_limit", "tune_threads"]


@contextmanager
def thread_limit(threads: int) -> Iterator[None]:
    """Run torch's CPU kernels on `threads` threads inside the block, and restore what was set before."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def tune_threads(rows: int, columns: int, device: torch.device) -> int:
    """How many threads pay for a [rows, columns] problem: one when the kernels are small, or when the machine is busy.

    Threads that wait for each other by spinning make products of side <= 500 slower, up to fifty times on a busy
    machine (measured), so only work above about 2·10⁸ multiplications a product is shared out, and only where an
    eigendecomposition is seen to gain by it.
    """
    threads = torch.get_num_threads()
    if device.type != "cpu" or threads == 1:
        return threads
    if rows * columns * min(rows, columns) <= 2e8:
        return 1

    def seconds(count: int) -> float:
        with thread_limit(count):
            start = time.perf_counter()
            torch.linalg.eigh(tried)
            return time.perf_counter() - start

    tried = torch.diag(torch.arange(256.0, dtype=torch.float64)) + 1
    seconds(threads)  # the first call starts the threads
    return threads if seconds(threads) < seconds(1) else 1


def _gram(matrix: Tensor) -> Tensor:
    return matrix.T @ matrix if matrix.shape[0] >= matrix.shape[1] else matrix @ matrix.T


def singular_values(matrix: Tensor, *, exact: bool = False) -> Tensor:
    """Singular values, descending, [min(u, c)].

    Through the Gram (fast for tall matrices; a value below 1e-8 of the largest drowns in rounding), or by a true SVD
    with `exact`.
    """
    found: Tensor = torch.linalg.svdvals(matrix) if exact else torch.linalg.eigvalsh(_gram(matrix))
    return found if exact else found.clamp_min(0).sqrt().flip(0)


def nuclear_norm(matrix: Tensor, *, exact: bool = False) -> float:
    """‖M‖_*, the sum of the singular values."""
    return float(singular_values(matrix, exact=exact).sum())


def spectral_norm(matrix: Tensor) -> float:
    """‖M‖₂, the largest singular value."""
    return float(singular_values(matrix)[0])


def shrink(matrix: Tensor, threshold: float, *, rank: int | None = None) -> tuple[Tensor, int]:
    """The proximal map of threshold·‖·‖_*: every singular value is lowered by `threshold`, and cut at zero.

    Returns the matrix and its rank. `rank` keeps at most that many singular values (then it is no longer a proximal map
    of a convex function). Cost O(u c min(u, c)): one Gram, one eigendecomposition, one or two products.
    """
    tall = matrix.shape[0] >= matrix.shape[1]
    values, vectors = torch.linalg.eigh(_gram(matrix))
    sigma = values.clamp_min(0).sqrt()
    kept = int((sigma > threshold).sum())
    if rank is not None:
        kept = min(kept, rank)
    if kept == 0:
        return torch.zeros_like(matrix), 0
    basis = vectors[:, -kept:].contiguous()
    factor = basis * ((sigma[-kept:] - threshold) / sigma[-kept:])
    if 2 * kept < len(sigma):  # two thin products are cheaper than one square one
        return ((matrix @ factor) @ basis.T if tall else factor @ (basis.T @ matrix)), kept
    square = factor @ basis.T
    return (matrix @ square if tall else square @ matrix), kept


def thin_svd(matrix: Floats) -> tuple[Floats, Floats, Floats]:
    """U [u, k], σ [k] descending and V [c, k] of matrix = U diag(σ) Vᵀ with σ > 0, k <= min(u, c).

    Up to 1e6 entries a true SVD; beyond, through the Gram of the small side, several times faster: there, a σ below 1e-7
    of the largest is left out, since rounding has it.
    """
    if matrix.size <= 1e6:
        left, sigma, right = np.linalg.svd(matrix, full_matrices=False)
        return left, sigma, right.T
    there = torch.from_numpy(matrix)
    tall = matrix.shape[0] >= matrix.shape[1]
    with thread_limit(tune_threads(len(matrix), matrix.shape[1], there.device)):
        values, vectors = torch.linalg.eigh(_gram(there))
        sigma = values.clamp_min(0).sqrt().flip(0)
        kept = int((sigma > 1e-7 * sigma[0]).sum())
        sigma, basis = sigma[:kept], vectors.flip(1)[:, :kept]
        other = (there @ basis if tall else there.T @ basis) / sigma
    left, right = (other, basis) if tall else (basis, other)
    return left.numpy(), sigma.numpy(), right.numpy()
