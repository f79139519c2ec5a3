"""The spectrum of one symmetric matrix without its eigenvectors, and what else follows from a single reduction of it."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy import LowLevelCallable
from scipy.linalg import cython_lapack, eigh_tridiagonal, eigvalsh_tridiagonal, lapack
from scipy.sparse.linalg import LinearOperator, eigsh

from headscan.statistics.lazy import lazy

__all__ = ["Tridiagonal"]

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
