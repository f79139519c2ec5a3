"""Finished statistics of one set of vectors: what every measure of shape is a function of."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from typing import Any, Self, TypeAlias, Union

import numpy as np
import numpy.typing as npt
import torch
from scipy import LowLevelCallable
from scipy.linalg import cython_lapack, eigh_tridiagonal, eigvalsh_tridiagonal, lapack
from scipy.sparse.linalg import LinearOperator, eigsh
from torch import Tensor

from headscan.run.errors import BadInput
from headscan.statistics.accumulator import lazy
from headscan.statistics.site import Sums

# ---- The spectrum of one symmetric matrix without its eigenvectors, and what else follows from a single reduction of it.

Floats = npt.NDArray[np.float64]
STEP, NODES = 0.7, np.log([1e-12, 1e6])  # of the integral over log t in `Tridiagonal.without`


@dataclass(frozen=True)
class Tridiagonal:
    """A symmetric matrix M = QTQᵀ [d, d]: T by its diagonal [d] and the numbers beside it [d − 1], Q as LAPACK's reflectors.

    Cost 4/3·d³ operations, four fifths of all that eigenvalues cost; the rest of them, a few eigenvectors, and the spectrum's
    entropy with some coordinates left out take O(d²) each.

    >>> form = Tridiagonal.of(np.array([[2.0, 1.0, 0.0], [1.0, 2.0, 0.0], [0.0, 0.0, 7.0]]))
    >>> form.values.round(12).tolist(), np.abs(form.strongest(1)).round(12).ravel().tolist()
    ([7.0, 3.0, 1.0], [0.0, 0.0, 1.0])
    """

    reflectors: Floats
    scales: Floats
    diagonal: Floats
    beside: Floats

    @classmethod
    def of(cls, matrix: Floats) -> Self:
        """Of a symmetric matrix [d, d], float64 in rows, which is overwritten."""
        size = len(matrix)
        diagonal, beside, scales = np.empty(size), np.empty(max(size - 1, 1)), np.empty(max(size - 1, 1))
        reduce, integer = _dsytrd()
        work = np.empty(64 * max(size, 1))
        numbers = [integer(size), integer(len(work)), integer(0)]
        arrays = [one.ctypes.data_as(ctypes.c_void_p) for one in (matrix, diagonal, beside, scales, work)]
        n, room, info = (ctypes.byref(one) for one in numbers)
        reduce(ctypes.byref(ctypes.c_char(b"L")), n, arrays[0], n, *arrays[1:], room, info)
        return cls(matrix.T, scales[: size - 1], diagonal, beside[: size - 1])

    @lazy
    def values(self) -> Floats:
        """The eigenvalues, largest first [d]."""
        if len(self.diagonal) == 1:
            return self.diagonal
        found: Floats = eigvalsh_tridiagonal(self.diagonal, self.beside, lapack_driver="sterf", check_finite=False)
        return found[::-1]

    def strongest(self, count: int) -> Floats:
        """The eigenvectors of the largest eigenvalues as columns [d, count]."""
        last = len(self.diagonal)
        if last == 1:
            return np.ones((1, count))
        chosen = last - count, last - 1
        found = eigh_tridiagonal(self.diagonal, self.beside, select="i", select_range=chosen, check_finite=False)[1]
        return self._turned(np.asfortranarray(found[:, ::-1]), "N")

    def _turned(self, columns: Floats, way: str) -> Floats:
        """Q·columns [d, k], or Qᵀ·columns with the way `T`; Q leaves the first coordinate as it is."""
        found = np.array(columns, order="F")
        below = np.asfortranarray(self.reflectors[1:, :-1])
        found[1:] = lapack.dormqr("L", way, below, self.scales, np.asfortranarray(found[1:]), 64 * found.shape[1])[0]
        return found

    def without(self, rows: Floats, coordinates: list[int]) -> tuple[float, float]:
        """λ₁' and Σλ'·log λ' of M' (positive semidefinite), which is M without some coordinates; `rows` [k, d] are M's there.

        M' itself is not decomposed. x log x = ∫(x/(1 + t) − x/(x + t))dt over t > 0, and for Σ λ/(λ + t) the two matrices
        differ by tr G⁻¹H, G and H the coordinates' parts of (M + t)⁻¹ and (M + t)⁻¹M(M + t)⁻¹, by Schur's complement. What one
        eigenvalue with the same first two moments would make is known and taken off, so the rest falls as t⁻³; of log t it
        is analytic up to ±πi, so the trapezoid's error is e^(−2π²/0.7), 6e-13. λ₁' is that of T across the coordinates.
        """
        k, top = len(coordinates), float(self.values[0])
        unit = np.zeros((len(self.diagonal), k))
        unit[coordinates, np.arange(k)] = 1.0
        across = self._turned(unit, "T")
        own, beside = self.diagonal / top, self.beside / top
        first = float(rows[np.arange(k), coordinates].sum()) / top
        second = float(2 * (rows**2).sum() - (rows[:, coordinates] ** 2).sum()) / top**2
        one = second / first  # the eigenvalue that stands for the difference, first/one times
        found = first * np.log(one)
        for t in np.exp(np.arange(NODES[0], NODES[1], STEP)):
            solved = lapack.dgtsv(beside, own + t, beside, across)[3]
            apart = float(np.trace(np.linalg.solve(across.T @ solved, solved.T @ self._times(solved) / top)))
            found += STEP * t * (first / (one + t) - apart)
        values = np.maximum(self.values / top, 0.0)
        entropy = float((values[values > 0] * np.log(values[values > 0])).sum()) - float(found)
        rest = float(values.sum()) - first
        return self._top(across), top * (entropy + rest * float(np.log(top)))

    def _times(self, columns: Floats) -> Floats:
        """T·columns [d, k]."""
        found: Floats = self.diagonal[:, None] * columns
        found[1:] += self.beside[:, None] * columns[:-1]
        found[:-1] += self.beside[:, None] * columns[1:]
        return found

    def _top(self, across: Floats) -> float:
        """The largest eigenvalue of T in the space that some orthonormal columns [d, k] leave."""

        def times(x: Floats) -> Floats:
            x = x.reshape(-1, 1)
            y = self._times(x - across @ (across.T @ x))
            return (y - across @ (across.T @ y)).ravel()

        size = len(self.diagonal)
        operator = LinearOperator((size, size), matvec=times, dtype=np.float64)
        return float(eigsh(operator, k=1, v0=np.ones(size), tol=0.0, return_eigenvectors=False)[0])


@cache
def _dsytrd() -> tuple[Any, type[ctypes.c_int | ctypes.c_int64]]:
    """LAPACK's reduction as scipy carries it, and its integers. Called so, other Python threads go on meanwhile, which they
    do not while `scipy.linalg.lapack.dsytrd` works."""
    routine = LowLevelCallable.from_cython(cython_lapack, "dsytrd")
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address = pointer(routine.function, routine.signature.encode())
    integer = ctypes.c_int if "(char *, int *," in routine.signature else ctypes.c_int64
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 10)(address), integer


WIDE = 256  # dimensions beyond which few directions, and what coordinates make, are found without all eigenvectors
NEAR = 1e-7  # tr C / ‖μ‖² below which the eigenvalues are taken apart from the mean's
Vectors: TypeAlias = Union["Cloud", npt.ArrayLike, Tensor]
"""Vectors as the rows of a matrix [n, d] (list, numpy array, tensor), or the finished `Cloud` of them."""


@dataclass(frozen=True, repr=False)
class Cloud:
    """A finished set of n vectors in d dimensions, known by its sums only.

    Build one from sums (`Cloud.of_sums`) or from rows (`Cloud.of_rows`, any [n, d] array or tensor). Everything is
    float64 numpy. `second_moment` and what follows from it raise ValueError where the sums held no Gram matrix.

    >>> cloud = Cloud.of_rows([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> cloud.count, cloud.width, cloud.mean.round(3).tolist()
    (3, 2, [0.667, 0.667])
    """

    # Eigenvalues alone are numpy's and scipy's: .22 CPU seconds for d = 1,536, where torch takes .28. Their threads, which do
    # not obey torch.set_num_threads, are held down where several clouds are at work (geometry/threads.py).

    count: int
    zeros: int
    unit_sum: Floats
    vector_sum: Floats
    norm_sum: float
    square_sum: float
    scatter: Floats | None  # Σ(x − μ)(x − μ)ᵀ [d, d]

    @classmethod
    def of_sums(cls, sums: Sums, *, gram: bool = True) -> Cloud:
        """The finished form of accumulated sums; with `gram=False` the second moment is left out."""
        scatter = sums.gram.scatter().cpu().numpy() if gram and sums.gram is not None else None
        return cls(
            count=sums.count, zeros=sums.zeros, unit_sum=sums.unit.cpu().numpy(), vector_sum=sums.total.cpu().numpy(),
            norm_sum=sums.norm, square_sum=sums.square, scatter=scatter,
        )  # fmt: skip

    @classmethod
    def of_rows(cls, rows: npt.ArrayLike | Tensor) -> Cloud:
        """The cloud of the rows of a matrix [n, d] (list, numpy array or tensor); BadInput for any other shape."""
        if not isinstance(rows, Tensor):
            rows = torch.from_numpy(np.array(rows, dtype=np.float64))
        if rows.ndim != 2:
            raise BadInput(f"Vectors come as the rows of a matrix [n, d], not in the shape {list(rows.shape)}.")
        return cls.of_sums(Sums.of_rows(rows.detach().cpu()))

    @classmethod
    def of(cls, vectors: Vectors) -> Cloud:
        """The cloud itself, or that of the rows of a matrix; BadInput where a value is NaN or infinite.

        >>> Cloud.of([[1.0, 0.0], [0.0, 1.0]])
        Cloud of 2 vectors in 2 dimensions
        """
        if isinstance(vectors, Cloud):
            return vectors
        cloud = cls.of_rows(vectors)
        if not np.isfinite(cloud.vector_sum).all():
            raise BadInput("Vectors must be finite: there are NaN or infinite values among these.")
        return cloud

    def __repr__(self) -> str:
        return f"Cloud of {self.count} vectors in {self.width} dimensions"

    @property
    def width(self) -> int:
        return len(self.vector_sum)

    @lazy
    def mean(self) -> Floats:
        """The mean vector μ [d]."""
        return self.vector_sum / self.count

    @lazy
    def second_moment(self) -> Floats:
        """M = C + μμᵀ = Σxxᵀ/n [d, d], about the origin."""
        return self.covariance + np.outer(self.mean, self.mean)

    @lazy
    def covariance(self) -> Floats:
        """C = Σ(x − μ)(x − μ)ᵀ/n [d, d], about the mean (divided by n, not n − 1)."""
        if self.scatter is None:
            raise ValueError("these sums were kept without a second moment")
        return self.scatter / max(self.count, 1)

    @lazy
    def _eigen(self) -> tuple[Floats, Floats]:
        values, vectors = _eigh(self, vectors=True)
        return np.clip(values, 0.0, None), vectors

    @lazy
    def energies(self) -> Floats:
        """σᵢ²/n, the eigenvalues of the second moment, largest first [d].

        Rounding leaves values below `rounding` undetermined: what the true data has as zero may come out as a positive
        number of that size, and is set to zero where it came out negative.
        """
        if "_eigen" in self.__dict__:
            return self._eigen[0]
        values = _eigh(self, vectors=False)[0] if _far(self) else self._form.values
        return np.clip(values, 0.0, None)

    @lazy
    def _form(self) -> Tridiagonal:
        moment = np.outer(self.mean, self.mean)
        moment += self.covariance
        return Tridiagonal.of(moment)

    @lazy
    def rounding(self) -> float:
        """What `energies` are known to, 4d·ε·λ₁; of the directions beside a mean far away, 4d·ε·tr C."""
        trace = float(np.trace(self.covariance))
        return 4 * self.width * float(np.finfo(float).eps) * (trace if _far(self) else float(self.energies[0]))

    @property
    def directions(self) -> Floats:
        """The eigenvectors of the second moment as columns [d, d], largest energy first."""
        return self._eigen[1]

    def strongest(self, count: int) -> Floats:
        """The first `count` of `directions` as columns [d, count]; of wide clouds without the others."""
        if self.width <= WIDE or _far(self) or "_eigen" in self.__dict__ or not count:
            return self.directions[:, :count]
        return self._form.strongest(count)

    def without(self, coordinates: list[int]) -> tuple[float, float] | None:
        """The largest of the shares pᵢ of the energy, and their entropy −Σ p log p in nats, with these coordinates left out;
        None where no energy is left."""
        rows = self.covariance[coordinates] + np.outer(self.mean[coordinates], self.mean)
        kept = np.delete(np.arange(self.width), coordinates)
        total = float(np.diag(self.covariance)[kept].sum() + self.mean[kept] @ self.mean[kept])
        if not total > 0:
            return None
        if (
            self.width > WIDE and not _far(self) and self.energies[0] < 10 * total
        ):  # else the rounding of λ₁ would be seen
            top, entropy = self._form.without(rows, coordinates)
            return top / total, float(np.log(total)) - entropy / total
        assert self.scatter is not None
        rest = Cloud(
            self.count, self.zeros, self.unit_sum[kept], self.vector_sum[kept], self.norm_sum, self.square_sum,
            self.scatter[np.ix_(kept, kept)],
        )  # fmt: skip
        shares = rest.energies / rest.energies.sum()
        return float(shares[0]), -float((shares[shares > 0] * np.log(shares[shares > 0])).sum())


def _far(cloud: Cloud) -> bool:
    return bool(cloud.count) and float(np.trace(cloud.covariance)) < NEAR * float(cloud.mean @ cloud.mean)


def _eigh(cloud: Cloud, *, vectors: bool) -> tuple[Floats, Floats]:
    """Eigenvalues of the second moment M = C + μμᵀ, largest first [d], and the eigenvectors [d, d] where asked ([d, 0]).

    Where ‖μ‖² is far above tr C, M's own eigenvalues would drown in the rounding of ‖μ‖². With a reflection that turns μ
    to the first axis, M is [[a, cᵀ], [c, B]]; λ₁ = a + ‖c‖²/a, and the others are those of B − ccᵀ/a, to (tr C/‖μ‖²)².
    """
    if not _far(cloud):
        moment = np.outer(cloud.mean, cloud.mean)
        moment += cloud.covariance
        values, found = _decomposed(moment, vectors)
        return values[::-1], found[:, ::-1]
    covariance, length = cloud.covariance, float(np.linalg.norm(cloud.mean))
    axis = cloud.mean / length
    axis[0] += np.copysign(1.0, axis[0])
    mirror = np.eye(cloud.width) - np.outer(axis, 2 * axis / (axis @ axis))
    turned = mirror @ covariance @ mirror
    top, cross = length**2 + turned[0, 0], turned[1:, 0]
    values, found = _decomposed(turned[1:, 1:] - np.outer(cross, cross) / top, vectors)
    energies = np.append(values, top + cross @ cross / top)[::-1]
    if not vectors:
        return energies, found
    turned = np.block([[np.ones((1, 1)), -(cross / top @ found)[None, ::-1]], [cross[:, None] / top, found[:, ::-1]]])
    return energies, mirror @ turned


def _decomposed(matrix: Floats, vectors: bool) -> tuple[Floats, Floats]:
    if not vectors:
        return np.linalg.eigvalsh(matrix).astype(np.float64, copy=False), np.zeros((len(matrix), 0))
    values, found = torch.linalg.eigh(torch.from_numpy(matrix))
    return values.numpy(), found.numpy()
