"""The softmax bottleneck: is the head's rank enough for the data (Godey et al. 2024, arXiv:2404.07647)?"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.sparse
import torch
from torch import Tensor

from headscan.geometry.explained import Cells
from headscan.geometry.interval import left_out
from headscan.geometry.spectrum import entropy_of

__all__ = ["LowRankHead", "head_spectrum", "ngram_matrix", "spectrum_of_sparse", "train_low_rank_head", "w_error"]


def head_spectrum(weight: Tensor) -> Cells:
    """Singular values of a head [V, d] and what they say of its rank.

    Keys: `singular_values` (largest first), `singular_entropy` log d − H(σ/Σσ) in nats (0: all directions alike; rises
    when a small model's head saturates), `effective_rank` of the energies, `stable_rank`, `top_ratio` σ₁/median σ,
    `half_error_rank` and `tenth_error_rank`: how many directions bring `w_error` to 0.5 and 0.1. Cost O(Vd² + d³).

    >>> round(head_spectrum(torch.eye(3))["singular_entropy"], 6)
    0.0
    """
    values = head_values(weight)
    if not values[0] > 0:
        names = (
            "singular_entropy",
            "effective_rank",
            "stable_rank",
            "top_ratio",
            "half_error_rank",
            "tenth_error_rank",
        )
        return {"singular_values": values.tolist()} | dict.fromkeys(names)
    energies = values**2 / (values**2).sum()
    errors = w_error(values)
    median = float(np.median(values))
    return {
        "singular_values": values.tolist(),
        "singular_entropy": max(0.0, math.log(len(values)) - entropy_of(values / values.sum())),
        "effective_rank": math.exp(entropy_of(energies)),
        "stable_rank": float(1 / energies[0]),
        "top_ratio": float(values[0]) / median if median > 0 else None,
        "half_error_rank": int(np.argmax(errors <= 0.5)),
        "tenth_error_rank": int(np.argmax(errors <= 0.1)),
    }


def head_values(weight: Tensor) -> npt.NDArray[np.float64]:
    """The singular values of a head [V, d], largest first; what is below rounding is zero."""
    w = torch.as_tensor(weight).detach().double()
    values = torch.linalg.eigvalsh(w.T @ w).flip(0).clamp(min=0)
    kept: npt.NDArray[np.float64] = (
        torch.where(values > 4 * w.shape[1] * 2.2e-16 * values[0], values, 0.0).sqrt().cpu().numpy()
    )
    return kept


def w_error(singular_values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """W-error(k) = ‖σ_{k+1:}‖₂/‖W‖_F for k = 0 ... d [d + 1]: what the best matrix of rank k leaves out. From 1 to 0.

    >>> w_error([4.0, 3.0]).tolist()
    [1.0, 0.6, 0.0]
    """
    energies = np.asarray(singular_values, dtype=np.float64) ** 2
    rest = np.concatenate([np.cumsum(energies[::-1])[::-1], [0.0]])
    return np.sqrt(rest / rest[0]) if rest[0] > 0 else np.zeros(len(rest))


def ngram_matrix(windows: npt.NDArray[np.int64], vocabulary: int, order: int) -> scipy.sparse.csr_matrix:
    """The empirical n-gram matrix [contexts, V]: row = p(next | the `order` − 1 tokens before), sparse.

    `windows` [B, T] of ids; contexts do not cross windows. Its spectrum says how much a head of rank d must lose on the
    data itself. Cost O(tokens).

    >>> ngram_matrix(np.array([[0, 1, 0, 2]]), 3, order=2).toarray().tolist()
    [[0.0, 0.5, 0.5], [1.0, 0.0, 0.0]]
    """
    ids = np.asarray(windows, dtype=np.int64)
    lead = order - 1
    grams = np.lib.stride_tricks.sliding_window_view(ids, order, axis=1).reshape(-1, order)
    keys = np.ascontiguousarray(grams[:, :lead]).view(np.dtype((np.void, 8 * lead))).ravel() if lead else None
    rows = np.zeros(len(grams), dtype=np.int64) if keys is None else np.unique(keys, return_inverse=True)[1].ravel()
    counts = scipy.sparse.coo_matrix(
        (np.ones(len(grams)), (rows, grams[:, -1])), shape=(int(rows.max(initial=0)) + 1, vocabulary)
    ).tocsr()
    return (scipy.sparse.diags(1 / np.asarray(counts.sum(1)).ravel()) @ counts).tocsr()


def spectrum_of_sparse(matrix: scipy.sparse.csr_matrix, *, most: int = 6000) -> npt.NDArray[np.float64]:
    """All singular values of a sparse matrix, largest first, from the Gram matrix of its occupied columns.

    Raises ValueError where more than `most` columns are occupied: 8·most² bytes and O(most³).

    >>> spectrum_of_sparse(scipy.sparse.csr_matrix([[3.0, 0, 0], [0, 0, 4.0]])).round(6).tolist()
    [4.0, 3.0]
    """
    occupied = np.unique(matrix.indices)
    if len(occupied) > most:
        raise ValueError(f"{len(occupied)} tokens occur, more than {most}")
    part = matrix[:, occupied]
    gram = (part.T @ part).toarray() if len(occupied) <= part.shape[0] else (part @ part.T).toarray()
    values: npt.NDArray[np.float64] = np.sqrt(np.clip(np.linalg.eigvalsh(gram)[::-1], 0, None))
    return values


@dataclass(frozen=True)
class LowRankHead:
    """A head W = A·B of rank r trained on frozen states: `a` [V, r], `b` [r, d], `loss` in nats a token on the second
    half of the positions, which training has not seen, with its 95 % `interval` over batches of them (not over what
    training would make of other data), and `path`, the training loss every tenth of the way."""

    a: Tensor
    b: Tensor
    loss: float
    path: list[float]
    interval: list[float] | None = None


def train_low_rank_head(
    states: Tensor, targets: Tensor, vocabulary: int, rank: int, *, steps: int = 300, batch: int = 1024,
    rate: float = 3e-3, seed: int = 0,
) -> LowRankHead:  # fmt: skip
    """Train softmax(A·B·h) on frozen hidden states [n, d] with the ids that come next [n]; Adam, cosine schedule.

    The first half of the positions trains, the second is held out. A starts at zero, B at N(0, 1/d), so that the first
    step starts at the uniform distribution. States are scaled by their root mean square, which a head can undo. Losses of
    several ranks at equal steps show where the rank begins to matter. Cost 6·steps·batch·r·(d + V) multiply-adds.

    >>> h = torch.eye(4).repeat(64, 1); y = torch.arange(4).repeat(64)
    >>> one, four = (train_low_rank_head(h, y, 4, r, steps=200, rate=0.05).loss for r in (1, 4))
    >>> four < 0.1 < one
    True
    """
    generator = torch.Generator().manual_seed(seed)
    h = states.detach().float()
    h = h / h.square().mean().sqrt().clamp(min=1e-12)
    half = len(h) // 2
    a = torch.zeros(vocabulary, rank, requires_grad=True)
    b = (torch.randn(rank, h.shape[1], generator=generator) / h.shape[1] ** 0.5).requires_grad_()
    optimiser = torch.optim.Adam([a, b], lr=rate, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    path = []
    for step in range(steps):
        chosen = torch.randint(half, (min(batch, half),), generator=generator)
        loss = torch.nn.functional.cross_entropy(h[chosen] @ b.T @ a.T, targets[chosen])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        if step % max(1, steps // 10) == 0:
            path.append(loss.item())
    with torch.no_grad():
        starts = range(half, len(h), batch)
        parts = [
            float(
                torch.nn.functional.cross_entropy(h[k : k + batch] @ b.T @ a.T, targets[k : k + batch], reduction="sum")
            )
            for k in starts
        ]
    total, count = sum(parts), max(1, len(h) - half)
    sizes = [min(batch, len(h) - k) for k in starts]
    left = [(total - part) / max(1, count - size) for part, size in zip(parts, sizes, strict=True)]
    interval = left_out(total / count, left, sizes, bounds=(0.0, None))
    return LowRankHead(a.detach(), b.detach(), total / count, path, interval)
