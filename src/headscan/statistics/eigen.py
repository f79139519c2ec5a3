"""Eigenvalues and a few eigenvectors of a symmetric matrix, from one decomposition.

The reduction to a tridiagonal matrix is nearly all of the cost: the eigenvalues follow from it in
O(d²), and k eigenvectors in O(k·d²). numpy and torch give all eigenvectors or none, which takes
three times as long or a second reduction, and scipy's own wrappers stop all other threads while
they work: on a CPU the routines of scipy's LAPACK are called by their addresses. Where no
eigenvectors are needed torch's way is taken, which is twice as fast in matrices of 2,048 and more
with Intel's library.
"""

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, Protocol

import numpy as np
import torch
from scipy.linalg import cython_lapack, eigh_tridiagonal
from torch import Tensor

from headscan.statistics.parallel import lazy
from headscan.statistics.uncertainty import Floats

BLOCK = 64
"""Columns that LAPACK works on at a time."""


class Eigen(Protocol):
    """The decomposition of a symmetric matrix [d, d].

    values: the eigenvalues, largest first [d].
    """

    values: Floats

    def strongest(self, count: int) -> Floats:
        """Return the eigenvectors of the `count` largest eigenvalues as columns [d, count]."""
        ...


def eigen(matrix: Tensor, *, vectors: bool = False) -> Eigen:
    """Return the decomposition of a symmetric matrix [d, d] in float64, on the matrix' device.

    Its upper triangle alone is read, and it may be overwritten. `vectors`: eigenvectors will be
    asked for. Without it eigenvalues alone are computed, and the matrix is decomposed once more
    where vectors are asked for all the same.
    """
    if not vectors:
        return ValuesAlone(matrix)
    if matrix.device.type == "cpu":
        return TridiagonalEigen(matrix)
    return DeviceEigen(matrix)


class ValuesAlone:
    """Eigenvalues, beside a matrix that is decomposed again for eigenvectors."""

    def __init__(self, matrix: Tensor):
        self._matrix = matrix
        self.values: Floats = torch.linalg.eigvalsh(matrix, UPLO="U").flip(0).cpu().numpy()

    @lazy
    def _whole(self) -> Eigen:
        return eigen(self._matrix, vectors=True)

    def strongest(self, count: int) -> Floats:
        return self._whole.strongest(count)


class DeviceEigen:
    """A decomposition on an accelerator, which gives all eigenvectors or none."""

    def __init__(self, matrix: Tensor):
        values, self._vectors = torch.linalg.eigh(matrix, UPLO="U")
        self.values: Floats = values.flip(0).cpu().numpy()

    def strongest(self, count: int) -> Floats:
        vectors = self._vectors[:, self._vectors.shape[1] - count :]
        directions: Floats = vectors.flip(1).cpu().numpy()
        return directions


class TridiagonalEigen:
    """A decomposition on a CPU by a tridiagonal matrix T = QᵀMQ, which is kept with Q."""

    def __init__(self, matrix: Tensor):
        self._reduced = np.ascontiguousarray(matrix.numpy())
        width = len(self._reduced)
        self._diagonal = np.empty(width)
        self._beside = np.zeros(max(1, width))
        self._reflections = np.zeros(max(1, width))
        size = BLOCK * max(1, width)
        # The upper triangle by rows is the lower one by columns, in which LAPACK reads.
        _call(
            "dsytrd",
            b"L",
            width,
            self._reduced,
            max(1, width),
            self._diagonal,
            self._beside,
            self._reflections,
            np.empty(size),
            size,
        )
        values = self._diagonal.copy()
        _call("dsterf", width, values, self._beside.copy())
        self.values: Floats = values[::-1].copy()

    def strongest(self, count: int) -> Floats:
        width = len(self._reduced)
        if not count or not width:
            return np.zeros((width, count))
        vectors = self._of_tridiagonal(count)
        size = BLOCK * count
        _call(
            "dormtr",
            b"L",
            b"L",
            b"N",
            width,
            count,
            self._reduced,
            width,
            self._reflections,
            vectors,
            width,
            np.empty(size),
            size,
        )
        return vectors[::-1].T

    def _of_tridiagonal(self, count: int) -> Floats:
        """Return the eigenvectors of T with the largest eigenvalues as rows, ascending.

        They come from inverse iteration, which may fail where T falls into parts of equal values;
        another algorithm then takes longer.
        """
        width = len(self._reduced)
        vectors = np.zeros((count, width))
        block = np.ones(count, np.intc)
        failed = np.empty(count, np.intc)
        try:
            _call(
                "dstein",
                width,
                self._diagonal,
                self._beside,
                count,
                self.values[:count][::-1].copy(),
                block,
                np.full(count, width, np.intc),
                vectors,
                width,
                np.empty(5 * width),
                np.empty(width, np.intc),
                failed,
            )
        except np.linalg.LinAlgError:
            selected = (width - count, width - 1)
            _, columns = eigh_tridiagonal(
                self._diagonal,
                self._beside[: width - 1],
                select="i",
                select_range=selected,
                lapack_driver="stemr",
            )
            vectors = np.ascontiguousarray(columns.T)
        return vectors


def _call(name: str, *arguments: bytes | int | float | np.ndarray) -> None:
    """Call a routine of LAPACK, which takes every argument by its address.

    Raises LinAlgError where it reports that it failed.
    """
    info = np.zeros(1, np.intc)
    addresses = [_address(argument) for argument in (*arguments, info)]
    _routine(name, len(addresses))(*addresses)
    if info[0]:
        raise np.linalg.LinAlgError(f"{name} of LAPACK ended with {info[0]}")


def _address(argument: bytes | int | float | np.ndarray) -> Any:
    if isinstance(argument, bytes):
        return ctypes.c_char_p(argument)
    if isinstance(argument, int):
        return ctypes.byref(ctypes.c_int(argument))
    if isinstance(argument, float):
        return ctypes.byref(ctypes.c_double(argument))
    return ctypes.c_void_p(argument.ctypes.data)


@cache
def _routine(name: str, arguments: int) -> Callable[..., None]:
    """Return a routine of scipy's LAPACK; other threads go on while it works."""
    capsule = cython_lapack.__pyx_capi__[name]
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype = ctypes.c_char_p
    api.PyCapsule_GetName.argtypes = [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    address = api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule))
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * arguments)(address)
