"""From vectors back to tokens: pseudo-inverse, nearest neighbour, Mahalanobis; whole or restricted vocabulary."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headscan.run import BadInput

Decoding = Literal["nearest", "pinv", "mahalanobis"]
Mask = Literal["-inf", "zero"]


class Decoder:
    """Scores of every token for given vectors; the factors that this needs are computed once.

    Args:
        allowed: tokens that may be returned, of all prompts [V] or of each [B, V]; the others score -inf.
        mask: "-inf", or "zero" for the published fault: scores are multiplied by 0 or 1, so that a forbidden token
            wins wherever all allowed ones score below zero.

    >>> table = torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> Decoder(table).decode(torch.tensor([[0.9, 1.1]]), "nearest")
    tensor([2])
    """

    def __init__(
        self, table: Float[Tensor, "V e"], allowed: Bool[Tensor, "*B V"] | None = None, mask: Mask = "-inf"
    ) -> None:
        if allowed is not None and not bool(allowed.any(-1).all()):
            raise BadInput("The restricted vocabulary is empty.")
        self.table, self.allowed, self.mask = table.float(), allowed, mask

    def __repr__(self) -> str:
        return f"Decoder({len(self.table)} tokens of width {self.table.shape[1]}, mask {self.mask})"

    @cached_property
    def _gram(self) -> Tensor:
        return _factor(self.table.double().T @ self.table.double())

    @cached_property
    def _covariance(self) -> Tensor:
        centred = self.table.double() - self.table.double().mean(0)
        return _factor(centred.T @ centred / len(centred))

    def pinv(self, vectors: Float[Tensor, "*batch e"]) -> Float[Tensor, "*batch V"]:
        """x W^+ = x (W^T W)^-1 W^T, [..., V]: the coefficients of least norm with which rows of W sum to x.

        The factor is d x d: no V x d pseudo-inverse is formed. Cost O(d^2 + d V) a vector.
        """
        flat = vectors.reshape(-1, vectors.shape[-1]).double()
        solved = torch.cholesky_solve(flat.T, self._gram).T.float()
        return (solved @ self.table.T).reshape(*vectors.shape[:-1], -1)

    def nearest(self, vectors: Float[Tensor, "*batch e"]) -> Float[Tensor, "*batch V"]:
        """Minus half the squared Euclidean distance, up to a constant of the vector, [..., V]."""
        return vectors.float() @ self.table.T - 0.5 * (self.table**2).sum(1)

    def mahalanobis(self, vectors: Float[Tensor, "*batch e"]) -> Float[Tensor, "*batch V"]:
        """Minus half the squared Mahalanobis distance under the covariance of the table's rows, up to a constant."""
        white = torch.linalg.solve_triangular(self._covariance, self.table.double().T, upper=False).T.float()
        flat = vectors.reshape(-1, vectors.shape[-1]).double()
        moved = torch.linalg.solve_triangular(self._covariance, flat.T, upper=False).T.float()
        scores: Tensor = moved @ white.T - 0.5 * (white**2).sum(1)
        return scores.reshape(*vectors.shape[:-1], -1)

    def scores(self, vectors: Float[Tensor, "*batch e"], method: Decoding = "nearest") -> Float[Tensor, "*batch V"]:
        """[..., V], larger is better; forbidden tokens as `mask` says."""
        by = {"nearest": self.nearest, "pinv": self.pinv, "mahalanobis": self.mahalanobis}
        return self.restrict(by[method](vectors))

    def restrict(self, scores: Float[Tensor, "*batch V"]) -> Float[Tensor, "*batch V"]:
        """Scores with the forbidden tokens masked."""
        if self.allowed is None:
            return scores
        allowed = self.allowed
        if allowed.ndim == 2:  # [B, V] for scores [B·restarts, T, V]
            allowed = allowed.repeat_interleave(len(scores) // len(allowed), 0)[:, None]
        return scores * allowed.to(scores) if self.mask == "zero" else scores.masked_fill(~allowed, float("-inf"))

    def decode(self, vectors: Float[Tensor, "*batch e"], method: Decoding = "nearest") -> Int[Tensor, "*batch"]:
        """The best token of each vector, [...]."""
        return self.scores(vectors, method).argmax(-1)


def _factor(matrix: Tensor) -> Tensor:
    factor, info = torch.linalg.cholesky_ex(matrix)
    if bool(info):
        matrix = matrix + 1e-10 * matrix.trace() * torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
        factor = torch.linalg.cholesky(matrix)
    return torch.as_tensor(factor)


def spread(table: Float[Tensor, "V e"]) -> float:
    """The standard deviation of the entries of a table [V, e], of its finite ones where some are not."""
    deviation = float(table.std())
    return deviation if math.isfinite(deviation) else float(table[table.isfinite()].std())
