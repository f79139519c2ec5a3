"""Spectral kernels on [u, c] matrices through the Gram of their small side, in float64 torch on any device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

__all__ = ["nuclear_norm", "singular_values", "spectral_norm", "thread_limit", "top_factors", "tune_threads"]


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
    """How many threads pay for a [rows, columns] problem: one when the kernels are small.

    Threads that wait for each other by spinning make products of side <= 500 slower, up to fifty times on a busy
    machine (measured), so only work above about 2·10⁸ multiplications a product is shared out.
    """
    if device.type != "cpu":
        return torch.get_num_threads()
    small = min(rows, columns)
    return torch.get_num_threads() if rows * columns * small > 2e8 else 1


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


def top_factors(matrix: Tensor, *, tolerance: float = 1e-9) -> tuple[Tensor, Tensor, Tensor]:
    """Thin SVD (U, σ, V) with singular values above `tolerance` of the largest; exact (no Gram)."""
    left, sigma, right = torch.linalg.svd(matrix, full_matrices=False)
    kept = int((sigma > tolerance * sigma[0]).sum()) if len(sigma) and sigma[0] > 0 else 0
    return left[:, :kept], sigma[:kept], right[:kept].T
