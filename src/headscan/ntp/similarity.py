"""Comparing embeddings through their Gram matrices without forming them: exact for any number of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["cosine", "gram_cosine", "pattern_similarity", "unit_rows"]


def cosine(a: npt.NDArray[np.floating[Any]], b: npt.NDArray[np.floating[Any]]) -> float:
    """⟨A, B⟩ / (‖A‖_F ‖B‖_F), in [-1, 1]; nan when either is zero."""
    norm = np.linalg.norm(a) * np.linalg.norm(b)
    return float((a * b).sum() / norm) if norm > 0 else float("nan")


def unit_rows(X: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.floating[Any]]:
    """Rows scaled to norm one; zero rows stay zero."""
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    return X / np.where(norms > 0, norms, 1.0)


def _inner(A: npt.NDArray[np.floating[Any]], B: npt.NDArray[np.floating[Any]]) -> float:
    # ⟨AAᵀ, BBᵀ⟩ = ‖AᵀB‖_F²: d x d numbers instead of n x n.
    product = np.asarray(A).T @ np.asarray(B)
    return float((product**2).sum())


def gram_cosine(A: npt.NDArray[np.floating[Any]], B: npt.NDArray[np.floating[Any]]) -> float:
    """cos(AAᵀ, BBᵀ) for embeddings A [n, d] and B [n, d']: in [0, 1], blind to rotations and to scale. O(n d d').

    >>> A = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> round(gram_cosine(A, A @ np.array([[0.0, -1.0], [1.0, 0.0]])), 12), round(gram_cosine(A, A[:, :1]), 6)
    (1.0, 0.707107)
    """
    norm = float(np.sqrt(_inner(A, A) * _inner(B, B)))
    return _inner(A, B) / norm if norm > 0 else float("nan")


def pattern_similarity(
    A: npt.NDArray[np.floating[Any]], B: npt.NDArray[np.floating[Any]], *, normalise: bool = True
) -> float:
    """Correlation over all entries of the two cosine matrices of rows: (cov + ε)/(σσ' + ε), ε = 1e-8, in [-1, 1].

    The measure of arXiv:2408.15417, section 5.3 (the structure term of SSIM). With `normalise` False the Gram matrices
    themselves are compared. O(n d d').

    >>> A = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> round(pattern_similarity(A, 3 * A), 12)
    1.0
    """
    if normalise:
        A, B = unit_rows(np.asarray(A)), unit_rows(np.asarray(B))
    n = len(A)

    def mean(X: npt.NDArray[np.floating[Any]]) -> float:
        return float((X.sum(0) ** 2).sum()) / n**2

    def covariance(X: npt.NDArray[np.floating[Any]], Y: npt.NDArray[np.floating[Any]]) -> float:
        return _inner(X, Y) / n**2 - mean(X) * mean(Y)

    spread = np.sqrt(max(covariance(A, A), 0.0) * max(covariance(B, B), 0.0))
    return float((covariance(A, B) + 1e-8) / (spread + 1e-8))
