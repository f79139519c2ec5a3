"""The in-support subspace F, its projection, and the sparse finite part of the logits, in O(nnz).

F = span{(e_z - e_z') ẽ_jᵀ : z, z' in S_j} holds the differences of logits inside supports; its
orthogonal complement holds the logits that are constant on each support. Training fixes the part in
F (to log-odds) and lets the part in F⊥ grow.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headscan.ntp.labels import Floats, Ints, SoftLabels, Supports


def in_support(logits: npt.NDArray[np.floating[Any]], supports: Supports) -> Floats:
    """Return P_F(L) on the stored entries, float64 [nnz]: L[j, z] - mean of L[j, ·] over S_j.

    `logits` is dense [m, V] or already the values on the support [nnz]. Outside the support P_F(L)
    is zero. This equals the published E_jᵀ(E_jE_jᵀ)⁻¹E_j ℓ_j without an inverse; O(nnz).

    >>> in_support(np.array([[3.0, 1.0, 9.0]]), Supports.of([[0, 1]], vocabulary=3)).tolist()
    [1.0, -1.0]
    """
    wide: Floats = np.asarray(logits, dtype=np.float64)
    values = wide if wide.ndim == 1 else wide[supports.rows, supports.indices]
    means: Floats = np.add.reduceat(values, supports.indptr[:-1]) / supports.sizes
    return values - np.repeat(means, supports.sizes)


def out_of_support(
    logits: npt.NDArray[np.floating[Any]], supports: Supports, *, centre: bool = True
) -> Floats:
    """Return P_⊥(L) = L - P_F(L), dense float64 [m, V]; with `centre` each row's mean, a free
    shift, is removed too.

    >>> out_of_support(np.array([[3.0, 1.0, -4.0]]), Supports.of([[0, 1]], vocabulary=3)).tolist()
    [[2.0, 2.0, -4.0]]
    """
    remainder = np.array(logits, dtype=np.float64)
    remainder[supports.rows, supports.indices] -= in_support(remainder, supports)
    if centre:
        remainder = remainder - remainder.mean(1, keepdims=True)
    return remainder


def sparse_component(labels: SoftLabels) -> Floats:
    """Return L^in on the stored entries, float64 [nnz]: log p_jz - mean of log p_j over S_j.

    The one matrix of F with L[j, z] - L[j, z'] = log(p_jz / p_jz'); the logits of a trained model
    converge to it inside the supports (Theorem 2 of arXiv:2408.15417). O(nnz).

    >>> sparse_component(SoftLabels.of([[2, 1, 0], [0, 0, 5]])).round(4).tolist()
    [0.3466, -0.3466, 0.0]
    """
    return in_support(np.log(labels.probability), labels.supports)


_BLOCK_ENTRIES = 1 << 16
"""Entries of a block that stay in a core's cache during the dozen passes of a projection."""

_LARGE_PRODUCT = 2e8
"""Multiplications of a matrix product above which several threads may pay."""


class MarginSet:
    """The convex set of scaled logits Z[j, t] = s_j q_t L[j, t] where L is equal on S_j and at
    least 1 lower off it.

    `inside` bool [u, c] marks the support of each row; `scale` s float64 [u] is the square root of
    the row's weight, `token_scale` q [c] that of the column's (how many equal tokens it stands
    for). The level of each row is kept between calls, so that a sequence of nearby projections
    costs about two Newton sweeps each.
    """

    def __init__(self, inside: Tensor, scale: Tensor, token_scale: Tensor) -> None:
        self.inside = inside
        self.scale = scale
        self.q = token_scale
        self.plain = bool((token_scale == 1).all())
        self.mass = token_scale**2
        self.inside_mass = inside.to(torch.float64) @ self.mass
        # the level of S~, where the solver starts
        self.level = scale * (1 - self.inside_mass / self.mass.sum())
        self.block = len(inside)
        if inside.device.type == "cpu":
            self.block = max(1, _BLOCK_ENTRIES // inside.shape[1])

    def centred_supports(self) -> Tensor:
        """Return S~ scaled, the feasible point that meets every margin with equality [u, c]."""
        level = (1 - self.inside_mass / self.mass.sum())[:, None]
        return torch.where(self.inside, level, level - 1) * self.scale[:, None] * self.q

    def update(self, X: Tensor, Z: Tensor, U: Tensor, relax: float) -> None:
        """Make one ADMM step in place: Y = relax X + (1 - relax) Z + U, then Z = projection of Y
        and U = Y - Z.

        Afterwards U is >= 0 off the support and orthogonal to q in every row, up to rounding: so
        -ρU is feasible for the dual.
        """
        for start in range(0, len(Z), self.block):
            rows = slice(start, start + self.block)
            Y = torch.lerp(Z[rows], X[rows], relax).add_(U[rows])
            projected = self.project(Y, rows)
            Z[rows] = projected
            torch.sub(Y, projected, out=U[rows])

    def project(self, Y: Tensor, rows: slice = slice(None)) -> Tensor:
        """Return the nearest point of the set to the rows Y, started at the rows' last levels.

        The level C of a row solves  Σ_S q(qC - y) = Σ_off q max(0, y - q(C - s)).  The left side
        minus the right is increasing, concave and piecewise linear in C, so Newton's steps land
        left of the root after the first one, climb monotonically, and end exactly, after as many
        steps as the active set changes.
        """
        inside = self.inside[rows]
        s = self.scale[rows][:, None]
        y = Y if self.plain else Y / self.q
        inner = torch.where(inside, y, 0.0) @ self.mass
        shifted = (y + s).masked_fill_(inside, -torch.inf)
        K = self.inside_mass[rows]
        C = self.level[rows]
        for _ in range(100):
            excess = shifted - C[:, None]
            above = (excess > 0).to(torch.float64) @ self.mass
            step = (inner + excess.clamp_min_(0) @ self.mass - K * C) / (K + above)
            C = C + step
            if float((step.abs() - 1e-15 * (1 + C.abs())).max()) <= 0:
                break
        self.level[rows] = C
        level = C[:, None]
        projected = torch.where(inside, level, torch.minimum(y, level - s))
        return projected if self.plain else projected * self.q

    def dual_value(self, U: Tensor, penalty: float) -> float:
        """Return ⟨-ρU, S~⟩ = Σ_off ρ U s q, summed off the support alone: every term is >= 0, so
        that nothing cancels.
        """
        outside = torch.where(self.inside, 0.0, U).clamp_min_(0) @ self.q
        return penalty * float(outside @ self.scale)


@dataclass(frozen=True, eq=False)
class TokenClasses:
    """Tokens grouped by the supports they stand in.

    A matrix whose columns are equal for equal tokens is kept as one column a class, times `root`
    [c], the square root of how many tokens the class has: norms, singular values and Gram matrices
    of contexts are then those of the whole matrix. `first` int64 [c] is a token of each class, `of`
    int64 [V] the class of each token.

    >>> classes = TokenClasses.of_supports(Supports.of([[0, 1], [0, 1, 2]], vocabulary=5))
    >>> classes.of.tolist(), classes.root.round(3).tolist()
    ([2, 2, 1, 0, 0], [1.414, 1.0, 1.414])
    """

    first: Ints
    of: Ints
    root: Floats

    @classmethod
    def of_supports(cls, supports: Supports) -> "TokenClasses":
        first, of = supports.equal_tokens()
        return cls(first, of, np.sqrt(np.bincount(of, minlength=len(first)).astype(np.float64)))

    def tokens(self, merged: Floats) -> Floats:
        """Return the rows [V, r] of the tokens from rows [c, r] of the classes; 8 V r bytes."""
        return np.asarray((merged / self.root[:, None])[self.of])


@contextmanager
def thread_limit(threads: int) -> Iterator[None]:
    """Run torch's CPU kernels on `threads` threads inside the block."""
    previous = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(previous)


def tune_threads(rows: int, columns: int, device: torch.device) -> int:
    """Return how many threads pay for a [rows, columns] problem: one when the kernels are small, or
    when the machine is busy.

    Threads that wait for each other by spinning make products of side <= 500 slower, up to fifty
    times on a busy machine (measured), so only work above about 2·10⁸ multiplications a product is
    shared out, and only where an eigendecomposition is seen to gain by it.
    """
    threads = torch.get_num_threads()
    if device.type != "cpu" or threads == 1:
        return threads
    if rows * columns * min(rows, columns) <= _LARGE_PRODUCT:
        return 1

    matrix = torch.diag(torch.arange(256.0, dtype=torch.float64)) + 1

    def seconds(count: int) -> float:
        with thread_limit(count):
            start = time.perf_counter()
            torch.linalg.eigh(matrix)
            return time.perf_counter() - start

    seconds(threads)  # the first call starts the threads
    return threads if seconds(threads) < seconds(1) else 1


def _gram(matrix: Tensor) -> Tensor:
    return matrix.T @ matrix if matrix.shape[0] >= matrix.shape[1] else matrix @ matrix.T


def singular_values(matrix: Tensor, *, exact: bool = False) -> Tensor:
    """Return the singular values, descending, [min(u, c)].

    They come from the Gram matrix (fast for tall matrices; a value below 1e-8 of the largest drowns
    in rounding), or from a true SVD with `exact`.
    """
    if exact:
        values: Tensor = torch.linalg.svdvals(matrix)
        return values
    squares: Tensor = torch.linalg.eigvalsh(_gram(matrix))
    return squares.clamp_min(0).sqrt().flip(0)


def shrink(matrix: Tensor, threshold: float) -> tuple[Tensor, int]:
    """Return the proximal map of threshold·‖·‖_* (every singular value is lowered by it, and cut at
    zero), and its rank.

    Cost O(u c min(u, c)): one Gram matrix, one eigendecomposition, one or two products.
    """
    tall = matrix.shape[0] >= matrix.shape[1]
    values, vectors = torch.linalg.eigh(_gram(matrix))
    sigma = values.clamp_min(0).sqrt()
    rank = int((sigma > threshold).sum())
    if rank == 0:
        return torch.zeros_like(matrix), 0
    basis = vectors[:, -rank:].contiguous()
    factor = basis * ((sigma[-rank:] - threshold) / sigma[-rank:])
    if 2 * rank < len(sigma):
        # Two thin products are cheaper than one square one.
        if tall:
            return (matrix @ factor) @ basis.T, rank
        return factor @ (basis.T @ matrix), rank
    square = factor @ basis.T
    return (matrix @ square if tall else square @ matrix), rank


def thin_svd(matrix: Floats) -> tuple[Floats, Floats, Floats]:
    """Return U [u, k], σ [k] descending and V [c, k] of matrix = U diag(σ) Vᵀ, k <= min(u, c).

    Up to 1e6 entries a true SVD; beyond, through the Gram of the small side, several times faster:
    there, a σ below 1e-7 of the largest is left out, since rounding has it.
    """
    if matrix.size <= 1e6:
        left, sigma, right = np.linalg.svd(matrix, full_matrices=False)
        return left, sigma, right.T
    tensor = torch.from_numpy(matrix)
    tall = matrix.shape[0] >= matrix.shape[1]
    with thread_limit(tune_threads(len(matrix), matrix.shape[1], tensor.device)):
        values, vectors = torch.linalg.eigh(_gram(tensor))
        sigma = values.clamp_min(0).sqrt().flip(0)
        rank = int((sigma > 1e-7 * sigma[0]).sum())
        sigma = sigma[:rank]
        basis = vectors.flip(1)[:, :rank]
        opposite = (tensor @ basis if tall else tensor.T @ basis) / sigma
    if tall:
        return opposite.numpy(), sigma.numpy(), basis.numpy()
    return basis.numpy(), sigma.numpy(), opposite.numpy()
